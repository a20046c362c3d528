"""Direct labels beside points, placed so that they do not cover each other."""

from __future__ import annotations

import itertools
from math import cos, pi, sin
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

DISTANCES = (5.5, 9.0, 14.0, 20.0, 28.0)  # points
DIRECTIONS = 16


def label_points(
    axes: Axes,
    points: Sequence[tuple[float, float]],
    texts: Sequence[str],
    colours: Sequence[str],
    lines: Sequence[Sequence[tuple[float, float]]],
    size: float,
) -> None:
    """Write each text near its point where it covers the least: other labels, markers, `lines`, the frame.

    Labels are tried at growing distances in all directions, in the order given; one that ends far from its
    point gets a thin line to it. The figure must have its final size and limits.
    """
    figure = axes.figure
    figure.canvas.draw()  # settles the layout, so that pixel positions are final
    renderer = figure.canvas.get_renderer()
    frame = axes.get_window_extent(renderer)
    scale = figure.dpi / 72
    centres = [axes.transData.transform(point) for point in points]
    taken = [_around(x, y, 4.0 * scale) for x, y in centres]
    for line in lines:
        ends = axes.transData.transform(line)
        taken += [_between(a, b, scale) for a, b in itertools.pairwise(ends)]
    for point, centre, text, colour in zip(points, centres, texts, colours, strict=True):
        label = axes.annotate(text, point, xytext=(0, 0), textcoords="offset points", fontsize=size, color=colour)
        label.set_in_layout(False)
        label.set_path_effects(_halo())
        extent = label.get_window_extent(renderer)  # its size does not depend on where it stands

        def box_at(place, centre=centre, extent=extent):
            return _box(centre, extent.width, extent.height, place, scale)

        best = min(_candidates(), key=lambda place: _cost(box_at(place), taken, frame, place))
        _move(label, best)
        box = box_at(best)
        taken.append(box)
        if best[0] > DISTANCES[1]:
            near = (min(max(centre[0], box[0]), box[2]), min(max(centre[1], box[1]), box[3]))
            inverse = axes.transData.inverted()
            line = [inverse.transform(centre), inverse.transform(near)]
            axes.plot(*zip(*line, strict=True), color=colour, linewidth=0.5, alpha=0.7, zorder=1, label="_leader")


def _candidates() -> list[tuple[float, float]]:
    return [(distance, 2 * pi * step / DIRECTIONS) for distance in DISTANCES for step in range(DIRECTIONS)]


def _move(label, place: tuple[float, float]) -> None:
    distance, angle = place
    dx, dy = cos(angle), sin(angle)
    label.set_position((distance * dx, distance * dy))
    label.set_horizontalalignment(("right", "center", "left")[_side(dx) + 1])
    label.set_verticalalignment(("top", "center", "bottom")[_side(dy) + 1])


def _box(
    centre, width: float, height: float, place: tuple[float, float], scale: float
) -> tuple[float, float, float, float]:
    """Pixels that a label covers when :func:`_move` has put it at `place`."""
    distance, angle = place
    dx, dy = cos(angle), sin(angle)
    left = centre[0] + scale * distance * dx + width * (_side(dx) - 1) / 2
    bottom = centre[1] + scale * distance * dy + height * (_side(dy) - 1) / 2
    return left, bottom, left + width, bottom + height


def _side(direction: float) -> int:
    """-1, 0 or 1: on which side of its point a label lies along one axis."""
    return (direction > 0.3) - (direction < -0.3)


def _cost(box, taken, frame, place: tuple[float, float]) -> float:
    distance, angle = place
    slant = abs(sin(angle))  # beside a point reads better than above it
    outside = (
        max(0, frame.x0 - box[0]) + max(0, box[2] - frame.x1) + max(0, frame.y0 - box[1]) + max(0, box[3] - frame.y1)
    )
    overlap = sum(_overlap(box, other) for other in taken)
    return 10 * overlap + 100 * outside + distance + slant


def _overlap(a, b) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))


def _around(x: float, y: float, radius: float) -> tuple[float, float, float, float]:
    return x - radius, y - radius, x + radius, y + radius


def _between(a, b, margin: float) -> tuple[float, float, float, float]:
    """The box of an axis-parallel line with a margin."""
    return min(a[0], b[0]) - margin, min(a[1], b[1]) - margin, max(a[0], b[0]) + margin, max(a[1], b[1]) + margin


def _halo() -> list:
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=1.8, foreground="white", alpha=0.9)]
