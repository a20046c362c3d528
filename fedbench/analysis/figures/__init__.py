"""One file per figure; each registers a ``draw(data, options) -> Figure`` in ``FIGURES``."""
