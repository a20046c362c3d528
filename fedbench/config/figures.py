"""Whether an experiment can fill the figures that it lists, found out before anything is trained."""

from dataclasses import dataclass
from functools import cached_property

from fedbench.config.entries import Experiment
from fedbench.config.reading import Config
from fedbench.config.spec import RunSpec, cells, resolve
from fedbench.errors import FedbenchError
from fedbench.registry import FIGURES


@dataclass(frozen=True)
class Asked:
    """What an experiment asks for, as a figure's ``objection(options, asked)`` sees it.

    A figure that shows only some experiments has such a function as an attribute. It returns what is missing, in words,
    or None; it is called without torch and without any run.
    """

    config: Config
    name: str

    @property
    def experiment(self) -> Experiment:
        return self.config.experiments[self.name]

    @cached_property
    def specs(self) -> tuple[RunSpec, ...]:
        """Its runs of one seed; those that cannot be made are left out, since planning refuses them anyway."""
        found = []
        first = cells(self.config, self.name)[0].seed
        for cell in cells(self.config, self.name):
            if cell.seed == first:
                try:
                    found.append(resolve(self.config, cell))
                except FedbenchError:
                    continue
        return tuple(found)


def check_figures(config: Config) -> None:
    """Raise if an experiment lists a figure that it can never fill."""
    for name in config.experiments:
        asked = Asked(config, name)
        for shown, figure in config.figures(name).items():
            objection = getattr(FIGURES[figure.common.figure].target, "objection", None)
            reason = objection(figure.options, asked) if objection and asked.specs else None
            if reason:
                raise FedbenchError(f"experiment {name!r}, figure {shown!r}: {reason}, or remove the figure")
