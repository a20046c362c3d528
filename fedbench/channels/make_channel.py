"""A run's channel from its config entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbench.channels._error_feedback import ErrorFeedback
from fedbench.registry import CHANNELS

if TYPE_CHECKING:
    from fedbench.channels.channel import Channel
    from fedbench.config.reading import Entry
    from fedbench.tree import Tree


def make_channel(entry: Entry, template: Tree) -> Channel:
    """The codec of a channel entry for messages like `template`, with error feedback if it asks for it."""
    channel = CHANNELS[entry.common.codec].target(entry.options, template)
    return ErrorFeedback(channel) if entry.common.error_feedback else channel
