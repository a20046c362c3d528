"""Adapters are refused where the built model shows that they are larger than a layer, whatever planning knew."""

import pytest
from toy import classifier, make

from fedbench.errors import FedbenchError

VIT = {"backbone": "small-vit", "dim": 24, "depth": 2, "heads": 2}


@pytest.mark.parametrize(
    ("model", "method", "option", "width", "layer"),
    [
        (VIT, {"method": "fa-lora"}, "rank", 24, "trunk.blocks.0.attn.proj, which is 24 x 24"),
        ({**VIT, "mlp_ratio": 0.5}, {"method": "ffa-lora"}, "rank", 12, "trunk.blocks.0.mlp.fc2, which is 12 x 24"),
        (VIT, {"method": "feddpa"}, "rank", 24, "trunk.blocks.0.attn.proj"),
        (VIT, {"method": "fedsdg"}, "rank", 24, "trunk.blocks.0.attn.proj"),
        (VIT, {"method": "fedsdg"}, "private_rank", 24, "trunk.blocks.0.attn.proj"),
        ({"backbone": "vit", "image_size": 32}, {"method": "fedper"}, "rank", 192, "trunk.blocks.0.attn.proj"),
        # grey images: the first convolution has just nine rows, which planning cannot know
        (
            {"backbone": "resnet-gn", "depth": 8},
            {"method": "fedavg", "trainable": "conv-lora"},
            "rank",
            9,
            "trunk.conv1.weight, which is 9 x 16",
        ),
        ({"backbone": "cnn"}, {"method": "fedavg", "trainable": "conv-lora"}, "rank", 25, "trunk.conv1.weight"),
    ],
)
def test_ranks_beyond_a_layers_smaller_side(model, method, option, width, layer):
    built = classifier(**model)
    make({**method, option: width}, built)
    with pytest.raises(FedbenchError, match=f"LoRA's {option} {width + 1} exceeds the smaller side of {layer}"):
        make({**method, option: width + 1}, built)
