"""The header of a GGUF file: what is in it, and files that are none, cut or unknown."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.checkpoints.gguf_file import StringList, open_gguf
from octavo.checkpoints.gguf_reader import light_reader
from octavo.checkpoints.gguf_weights import StoredGroups, read_floats, read_groups
from octavo.core.kernels import GroupedWeight, WeightFormat
from octavo.errors import ModelError
from tests.checkpoints.gguf_files import write_gguf


def _dequantized(found: StoredGroups) -> Any:
    weight = GroupedWeight.unpack(found.packed, *found.shape, found.channel_scale, found.format)
    return weight.dequantize()


@pytest.fixture
def weights() -> Any:
    return np.random.default_rng(0).normal(size=(8, 64)).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path, weights: Any) -> Path:
    tensors = {"blk.0.ffn_up.weight": (weights, "Q4_0"), "output_norm.weight": (weights[0], "F32")}
    metadata = {"llama.block_count": 2, "words": ["a", "bc"], "sections": [1, 2, 3]}
    return write_gguf(tmp_path / "m.gguf", tensors, metadata=metadata)


def test_a_header_tells_metadata_and_tensors(path: Path, weights: Any) -> None:
    found = open_gguf(path)
    assert found.architecture == "llama"
    assert found.metadata["llama.block_count"] == 2
    assert found.metadata["words"] == StringList(2)  # a vocabulary's words are not read
    assert found.metadata["sections"] == [1, 2, 3]
    up, norm = found.tensors
    assert (up.name, up.shape, up.kind.name) == ("blk.0.ffn_up.weight", (8, 64), "Q4_0")
    np.testing.assert_array_equal(read_floats(found, norm), weights[0])
    groups = read_groups(found, up, np.arange(8)[::-1])
    assert groups.kept
    np.testing.assert_array_equal(_dequantized(groups)[::-1], read_floats(found, up))


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"PK\3\4" + bytes(100), r"is no GGUF file: it begins with b'PK\\x03\\x04'"),
        (b"", "is empty"),
        (None, "No such file"),
        (b"GGUF" + struct.pack(">IQQ", 3, 1, 1) + bytes(64), "byte order .*gguf-convert-endian"),
        (b"GGUF" + struct.pack("<IQQ", 1, 1, 1) + bytes(64), "GGUF of version 1"),
    ],
    ids=["zip", "empty", "none", "big-endian", "old"],
)
def test_a_file_that_is_none_says_what_it_is(
    tmp_path: Path, data: bytes | None, named: str
) -> None:
    if data is not None:
        (tmp_path / "m.gguf").write_bytes(data)
    with pytest.raises(ModelError, match=named):
        open_gguf(tmp_path / "m.gguf")


def test_a_file_cut_anywhere_says_what_is_missing(path: Path) -> None:
    whole = path.read_bytes()
    for size in [*range(5, len(whole) - 40, 41), len(whole) - 40]:
        path.write_bytes(whole[:size])
        with pytest.raises(ModelError, match=r"is cut short: .*copy or download it again"):
            open_gguf(path)
    with pytest.raises(ModelError, match=r"output_norm.weight ends at byte"):
        open_gguf(path)


def test_an_unknown_type_names_the_tensor(path: Path) -> None:
    data = path.read_bytes()
    at = data.index(b"blk.0.ffn_up.weight") + len("blk.0.ffn_up.weight") + 4 + 2 * 8
    path.write_bytes(data[:at] + struct.pack("<I", 99) + data[at + 4 :])
    with pytest.raises(ModelError, match=r"blk.0.ffn_up.weight is of type 99"):
        open_gguf(path)


def test_an_alignment_that_is_none_is_damage(tmp_path: Path) -> None:
    w = np.ones((8, 32), np.float32)
    for alignment in (0, "x"):
        said = {"general.alignment": alignment}
        path = write_gguf(tmp_path / "m.gguf", {"a": (w, "Q4_0")}, metadata=said)
        with pytest.raises(ModelError, match=r"is damaged: general.alignment is"):
            open_gguf(path)


@pytest.mark.parametrize("shape", [(64,), (2, 4, 32)])
def test_blocks_that_are_no_matrix_are_named(tmp_path: Path, shape: tuple[int, ...]) -> None:
    w = np.ones(shape, np.float32)
    file = open_gguf(write_gguf(tmp_path / "m.gguf", {"a": (w, "Q4_0")}))
    with pytest.raises(ModelError, match=r"a \(Q4_0\) has the shape .*a matrix"):
        read_groups(file, file.tensors[0])


@pytest.mark.parametrize("kind", ["Q5_1", "TQ2_0"])
def test_blocks_that_no_groups_hold_are_rounded_anew(tmp_path: Path, kind: str) -> None:
    w = np.random.default_rng(0).normal(size=(8, 256)).astype(np.float32)
    file = open_gguf(write_gguf(tmp_path / "m.gguf", {"a": (w, kind)}))
    found = read_groups(file, file.tensors[0])
    many = kind == "Q5_1"
    assert found.format is (WeightFormat.INT8_32 if many else WeightFormat.INT4_32_AFFINE)
    assert not found.kept
    exact = read_floats(file, file.tensors[0])
    noise = np.square(exact - _dequantized(found)).sum() / np.square(exact).sum()
    assert noise < (1e-4 if many else 1e-3)
    assert found.noise / found.signal == pytest.approx(noise, rel=1e-2)


def test_integers_are_no_weights(tmp_path: Path) -> None:
    import gguf

    path = tmp_path / "m.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("blk.0.ids", np.zeros((4, 32), np.int8))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    file = open_gguf(path)
    with pytest.raises(ModelError, match=r"blk.0.ids is of type I8, which neither"):
        read_groups(file, file.tensors[0])


def test_without_gguf_the_message_says_how_to_get_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ModelError, match=r"need gguf, which is not installed: pip install"):
        open_gguf(path)


@pytest.mark.parametrize("kind", ["Q4_1", "Q5_1"])
def test_a_large_tensor_is_the_same_in_parts(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = np.random.default_rng(0).normal(size=(100, 64)).astype(np.float32)
    file = open_gguf(write_gguf(tmp_path / "m.gguf", {"a": (w, kind)}))
    order = np.random.default_rng(1).permutation(100)
    whole, turned = (read_groups(file, file.tensors[0], rows) for rows in (None, order))
    monkeypatch.setattr("octavo.checkpoints.gguf_weights._CHUNK", 2100)  # 32 rows
    for rows, expected in ((None, whole), (order, turned)):
        found = read_groups(file, file.tensors[0], rows)
        np.testing.assert_array_equal(found.packed, expected.packed)
    np.testing.assert_array_equal(_dequantized(whole)[order], _dequantized(turned))


def test_the_light_reader_says_what_gguf_says(path: Path) -> None:
    import gguf
    from transformers.modeling_gguf_pytorch_utils import read_field

    plain = gguf.GGUFReader(path)
    with light_reader():
        light = gguf.GGUFReader(path)
    assert gguf.GGUFReader is type(plain)
    assert [t.name for t in light.tensors] == [t.name for t in plain.tensors]
    for key in ("general.architecture", "llama.block_count", "sections"):
        assert read_field(light, key) == read_field(plain, key)
    assert read_field(light, "words") == ["", ""]
