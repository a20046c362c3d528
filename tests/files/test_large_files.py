"""Configs, weights and arrays that claim or are more than memory holds are one line."""

import json
import os
import struct
import threading
import zipfile

import pytest
import torch

from fedbench.config import layers
from fedbench.errors import FedbenchError
from fedbench.files import io
from fedbench.models import weights as build

GIB = 1 << 30


def test_configs_of_gigabytes_and_devices(tmp_path):
    with open(tmp_path / "large.yaml", "wb") as file:
        file.truncate(5 * GIB)
    for path in (tmp_path / "large.yaml", "/dev/zero"):
        with pytest.raises(FedbenchError, match="more than 8,388,608 bytes, which no config has"):
            layers.read(path)


def test_a_config_may_come_from_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=("name: piped\r\n",))
    writer.start()
    assert layers.read(tmp_path / "pipe") == {"name": "piped"}
    writer.join()


@pytest.mark.parametrize("kind", ["lists", "mappings", "merges"])
def test_few_lines_that_stand_for_millions_of_values(tmp_path, kind):
    lines = ["a0: &a0 " + {"lists": "[x]", "mappings": "{x: y}", "merges": "{x: y}"}[kind]]
    for level in range(1, 12):
        aliases = [f"*a{level - 1}"] * 9
        body = {
            "lists": f"[{', '.join(aliases)}]",
            "mappings": "{" + ", ".join(f"k{number}: {alias}" for number, alias in enumerate(aliases)) + "}",
            "merges": f"{{<<: [{', '.join(aliases)}]}}",
        }[kind]
        lines.append(f"a{level}: &a{level} {body}")
    (tmp_path / "config.yaml").write_text("\n".join(lines))
    with pytest.raises(FedbenchError, match="more than 1,000,000 values, counting each alias") as caught:
        layers.read(tmp_path / "config.yaml")
    assert "\n" not in str(caught.value)


def safetensors(header: dict, data: bytes = b"", length: int | None = None) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (safetensors({}, length=1 << 62), "not a whole safetensors file"),
        (safetensors({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 4]}}, bytes(4)), "not a whole"),
        (
            safetensors({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}, bytes(4)),
            "not a whole",
        ),
        (safetensors({"a": {"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]}}, bytes(1)), "a is torch.float8"),
        (safetensors({"a": {"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}}, bytes(1)), "a is torch.float4"),
        (safetensors({"a": {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]}}, bytes(8)), "a is torch.complex64"),
    ],
)
def test_weights_that_claim_what_they_have_not(tmp_path, data, message):
    (tmp_path / "w.safetensors").write_bytes(data)
    with pytest.raises(FedbenchError, match=message):
        build.read_weights(tmp_path / "w.safetensors")


def test_weights_larger_than_any_model(tmp_path):
    with open(tmp_path / "w.safetensors", "wb") as file:
        file.write(safetensors({"a": {"dtype": "F32", "shape": [5 * GIB], "data_offsets": [0, 20 * GIB]}}))
        file.truncate(file.tell() + 20 * GIB)
    with pytest.raises(FedbenchError, match=r"bytes, but at most 17,179,869,184 of weights are read"):
        build.read_weights(tmp_path / "w.safetensors")


def test_a_value_that_is_not_finite_is_found_in_any_piece(tmp_path):
    weights = torch.zeros((1 << 24) + 5)
    weights[-1] = torch.inf
    build.save_weights(tmp_path / "w.safetensors", {"a": weights})
    with pytest.raises(FedbenchError, match="a has values that are not finite"):
        build.read_weights(tmp_path / "w.safetensors")


def test_arrays_that_claim_gigabytes(tmp_path):
    path = tmp_path / "arrays.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("labels.npy", b"x")
    info = b"\x01\0\x08\0" + struct.pack("<Q", 5 * GIB)  # sizes of over 4 GiB stand in a field of their own
    data = bytearray(path.read_bytes())
    place = data.index(b"PK\1\2")
    data[place + 24 : place + 28] = b"\xff" * 4
    data[place + 30 : place + 32] = struct.pack("<H", len(info))
    name = place + 46 + len("labels.npy")
    data[name:name] = info
    end = data.index(b"PK\5\6") + 12
    data[end : end + 4] = struct.pack("<I", struct.unpack("<I", data[end : end + 4])[0] + len(info))
    path.write_bytes(data)
    with pytest.raises(FedbenchError, match=r"damaged \(labels\.npy has 5,368,709,120 bytes\)"):
        io.read_arrays(path)
