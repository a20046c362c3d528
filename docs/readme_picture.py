"""Make README's picture from the demo's Pareto figure, once for light pages and once for dark ones.

python docs/readme_picture.py results/demo/figures/pareto/pareto.png docs/pareto
"""

import sys

import numpy as np
from PIL import Image

PAGE = np.array([13, 17, 23])  # GitHub's dark background
MOST_BYTES = 150_000


def darkened(picture: np.ndarray) -> np.ndarray:
    """The picture with light and dark exchanged and hues kept, on the dark page's background; (height, width, 3)."""
    values = picture.astype(int)
    exchanged = 255 - values.max(2, keepdims=True) - values.min(2, keepdims=True) + values
    return (PAGE + exchanged * (255 - PAGE) / 255).round().clip(0, 255).astype(np.uint8)


def main(source: str, target: str) -> None:
    light = np.asarray(Image.open(source).convert("RGB"))
    for name, picture in (("light", light), ("dark", darkened(light))):
        path = f"{target}-{name}.png"
        Image.fromarray(picture).quantize(64).save(path, optimize=True)
        with open(path, "rb") as file:
            size = len(file.read())
        print(f"{path}: {size / 1000:.0f} kB")
        if size > MOST_BYTES:
            sys.exit(f"error: {path} has more than {MOST_BYTES // 1000} kB; draw fewer points or a smaller figure")


if __name__ == "__main__":
    main(*sys.argv[1:])
