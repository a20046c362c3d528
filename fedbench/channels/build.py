"""A run's channel from its config entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedbench.channels._error_feedback import ErrorFeedback
from fedbench.registry import CHANNELS

if TYPE_CHECKING:
    from fedbench.channels.channel import Channel
    from fedbench.config.reading import Plugin
    from fedbench.tree import Tree


def build_channel(entry: Plugin, template: Tree) -> Channel:
    """The codec of a channel entry for messages like `template`, with error feedback if it asks for it."""
    channel = CHANNELS[entry.entry.codec].target(entry.options, template)
    return ErrorFeedback(channel) if entry.entry.error_feedback else channel
