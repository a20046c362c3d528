"""What the private branch's scale does to output, gate and gradient: a computation, not a result of runs.

A private branch p and its gate m reach the output as a product, so that without alignment (c p, m / c) is the same
model for every c: neither the branch's scale nor the gate has a meaning of its own. Aligned to an anchor, c cancels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedbench.analysis.figures._style import (
    FONT,
    MUTED,
    WIDTH,
    MethodStyle,
    legend,
    method_styles,
    new_figure,
    plain_log_scale,
    powers_of_ten,
    styled,
)
from fedbench.errors import FedbenchError
from fedbench.options import options
from fedbench.randomness import stream
from fedbench.registry import FIGURES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fedbench.analysis.collect import ExperimentData
    from fedbench.config.figures import Asked

SCALES = tuple(float(c) for c in np.logspace(-1, 1, 20))  # c = 1 is not among them: no change has no logarithm
GATE = 0.3
IMAGES = 16


@options
class IdentifiabilityOptions:
    """The identifiability figure has no options."""


@dataclass(frozen=True)
class Effect:
    """What multiplying the private branch by c does.

    Attributes
    ----------
    output : |f(c) - f(1)| / |f(1)| of the logits, with the gate as it was
    gate : the gate that brings the first site's output back (least squares), mean over samples
    slope : the summed loss's derivative with respect to the gates' logits, its norm relative to c = 1
    """

    output: float
    gate: float
    slope: float


@FIGURES.register("identifiability", IdentifiabilityOptions)
@styled
def draw(data: ExperimentData, options: IdentifiabilityOptions = IdentifiabilityOptions()) -> Figure:  # noqa: B008 (frozen)
    """A private branch times c in a small ViT with random weights (no trained run): output, gate and its gradient."""
    variants = alignments(data)
    if not variants:
        raise FedbenchError(
            f"experiment {data.name!r}, figure identifiability: none of its methods aligns a private branch; "
            "add fedsdg with and without alignment, or remove the figure"
        )
    measured = {method: effects(alignment) for method, alignment in variants.items()}
    figure = new_figure(WIDTH, 3.1)
    output, gate, slope = figure.subplots(1, 3)
    styles = method_styles(data.config)
    handles: dict = {}
    for axes, name in ((output, "output"), (gate, "gate"), (slope, "slope")):
        handles |= _panel(axes, data, measured, name, styles)
    output.set_ylabel("Relative change of the logits")
    gate.set_ylabel("Gate m that keeps the output")
    gate.axhline(1, color=MUTED, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1, label="_limit")
    gate.annotate(
        "a gate's maximum",
        (SCALES[-1], 1),
        xytext=(0, 2),
        textcoords="offset points",
        ha="right",
        fontsize=FONT - 1.5,
        color=MUTED,
    )
    figure.suptitle(
        "Computed in a small ViT with random weights: no run of this experiment, no trained model",
        fontsize=FONT - 0.5,
        color=MUTED,
    )
    slope.set_ylabel("|∂L/∂a| relative to c = 1")
    columns = min(3, len(handles)) if max(map(len, handles)) < 36 else 2
    legend(figure, list(handles.values()), loc="outside lower center", ncols=columns)
    return figure


def _objection(options: IdentifiabilityOptions, asked: Asked) -> str | None:
    if all(getattr(spec.method.options, "alignment", None) is None for spec in asked.specs):
        return "none of its methods aligns a private branch; add fedsdg with and without alignment"
    return None


draw.objection = _objection


def alignments(data: ExperimentData) -> dict[str, str]:
    """One method for each kind of alignment that the experiment compares.

    The reference if it is of that kind, else the first whose gate is learned, as it is in this figure, else the first.
    """
    found: dict[str, str] = {}

    def precedence(method: str) -> tuple[bool, bool]:
        fixed = getattr(data.config.methods[method].options, "gate", None) == "fixed"
        return method != data.experiment.reference, fixed

    for method in sorted(data.methods, key=precedence):
        alignment = getattr(data.config.methods[method].options, "alignment", None)
        if alignment is not None:
            found.setdefault(alignment, method)
    return {method: alignment for alignment, method in found.items()}


def effects(alignment: str) -> list[Effect]:
    """The effect of every c in SCALES on one fixed model, all in float64."""
    import torch

    from fedbench.config.reading import parse_entry
    from fedbench.models.dual_lora import DualLoraTask
    from fedbench.models.make_model import make_model
    from fedbench.models.task import Batch
    from fedbench.tree import expand

    backbone = {"backbone": "small-vit", "patch": 2, "dim": 24, "depth": 4, "heads": 2}
    classifier = make_model(parse_entry("models", "fixed", backbone), (1, 8, 8), 10).double().eval()
    # Every alignment gets the same branches: those of the aligned initialisation, and a shared one that is not zero.
    task, start = DualLoraTask(classifier, 4, 8.0, 4, alignment), DualLoraTask(classifier, 4, 8.0, 4)
    shared, private = start.init(stream(0, "shared")), start.init_private(stream(0, "private"))
    weights = {name: leaf.double() for name, leaf in {**shared, **private}.items()}
    for name, leaf in weights.items():
        if name.startswith("lora.") and name.endswith(".B"):
            weights[name] = 0.1 * torch.from_numpy(stream(0, "shared", name).standard_normal(leaf.shape))
        if name.startswith("gate."):
            weights[name] = torch.logit(torch.tensor(GATE, dtype=torch.float64))
    images = torch.from_numpy(stream(0, "images").standard_normal((1, IMAGES, 1, 8, 8)))
    labels = torch.from_numpy(stream(0, "labels").integers(0, 10, (1, IMAGES)))
    site = task.classifier.sites[0]
    x = torch.from_numpy(stream(0, "tokens").standard_normal((IMAGES, 16, site.in_features)))
    frozen = torch.from_numpy(stream(0, "frozen").standard_normal((IMAGES, 16, site.out_features)))

    def scaled(c: float) -> dict:
        both = {n: c * leaf if n.startswith("private.") and n.endswith(".B") else leaf for n, leaf in weights.items()}
        return expand(both, 1)

    def branch(c: float):
        """What the private branch adds to the first site's output at m = GATE."""
        leaves = scaled(c)
        without = {name: leaf for name, leaf in leaves.items() if not name.startswith(("private.", "gate."))}
        return task.adapt(site, x, frozen, leaves) - task.adapt(site, x, frozen, without)

    def measure(c: float):
        leaves = {name: leaf.clone().requires_grad_(name.startswith("gate.")) for name, leaf in scaled(c).items()}
        task.losses(leaves, Batch(images, labels)).sum().backward()
        slopes = torch.cat([leaf.grad for name, leaf in leaves.items() if name.startswith("gate.")])
        with torch.no_grad():
            return task.logits(leaves, images), branch(c), float(torch.linalg.vector_norm(slopes))

    logits, added, slope = measure(1.0)
    found = []
    for c in SCALES:
        now, own, steep = measure(c)
        change = float(torch.linalg.vector_norm(now - logits) / torch.linalg.vector_norm(logits))
        # the added part is linear in m, so the gate that brings it back is a projection
        found.append(Effect(change, GATE * float((own * added).sum() / own.square().sum()), steep / slope))
    return found


def _panel(
    axes: Axes, data: ExperimentData, measured: dict[str, list[Effect]], name: str, styles: dict[str, MethodStyle]
) -> dict:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    handles = {}
    for place, (method, found) in enumerate(measured.items()):
        style = styles[method]
        label = data.methods[method]
        # Aligned variants lie on each other; markers at different places show that all are there.
        (line,) = axes.plot(
            SCALES,
            [getattr(effect, name) for effect in found],
            color=style.colour,
            linestyle=style.line,
            linewidth=1.3,
            marker=style.marker,
            markersize=4,
            markevery=(place % 5, 5),
            label=label,
        )
        handles[label] = line
    axes.set_xscale("log")
    if name == "output":
        axes.set_yscale("log")
        powers_of_ten(axes.yaxis)
    else:
        plain_log_scale(axes)
    axes.xaxis.set_major_locator(FixedLocator([0.1, 0.3, 1, 3, 10]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("Private branch multiplied by c")
    return handles
