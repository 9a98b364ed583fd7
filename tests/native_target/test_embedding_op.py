"""ai.octavo.Embedding: rows of an int8 table inside ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octavo.core.embedding import Embedding
from octavo.core.kernels import checksum, pack, quantize_weight
from octavo.core.qparams import Grid, QType
from tests.core.statement import assert_same_bits
from tests.native_target.nodes import REFUSALS, inferred, run, session

SHAPES = [(1, 1), (5, 3), (16, 4), (37, 70), (40, 384), (513, 17)]
both_layouts = pytest.mark.parametrize("packed", [0, 1], ids=["rows", "packed"])


class Table:
    """A quantized table, and what a node needs of it."""

    def __init__(self, rows: int, dim: int, *, symmetric: bool = True) -> None:
        r = np.random.default_rng([rows, dim])
        values = r.standard_normal((rows, dim)) * 10 ** r.uniform(-3, 3, (rows, 1))
        self.held = quantize_weight(
            values.astype(np.float32), Grid.of(QType.INT8, symmetric=symmetric), 0
        )
        self.rows, self.dim = rows, dim

    def constants(self, packed: int = 0) -> dict[str, np.ndarray]:
        q = self.held.q
        if packed:
            shape = (-(-self.rows // 16), -(-self.dim // 4), 16, 4)
            q = pack(q).view(np.int8).reshape(shape)
        zero = self.held.qparams.zero_point.astype(np.int8)
        return {"W": q, "W_scale": self.held.qparams.scale, "W_zero_point": zero}

    def attributes(self, packed: int = 0, **more: Any) -> dict[str, Any]:
        digest = checksum(self.constants(packed)["W"].view(np.uint8).reshape(-1))
        return {"V": self.rows, "D": self.dim, "packed": packed, "checksum": digest, **more}

    def expected(self, indices: np.ndarray) -> np.ndarray:
        """One float32 product an element, so that these are the bits."""
        zero = self.held.qparams.zero_point[:, None]
        steps = self.held.q.astype(np.float32) - zero.astype(np.float32)
        rows: np.ndarray = (steps * self.held.qparams.scale[:, None])[indices]
        return rows

    def run(self, indices: np.ndarray, packed: int = 0, threads: int = 1) -> np.ndarray:
        constants, attributes = self.constants(packed), self.attributes(packed)
        return run("Embedding", {"indices": indices}, constants, threads, **attributes)


@both_layouts
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "affine"])
@pytest.mark.parametrize("rows,dim", SHAPES)
def test_rows_are_dequantized(
    rows: int, dim: int, symmetric: bool, dtype: type, packed: int
) -> None:
    table = Table(rows, dim, symmetric=symmetric)
    indices = np.random.default_rng(1).integers(-rows, rows, (3, 50)).astype(dtype)
    y = table.run(indices, packed)
    assert_same_bits(y, table.expected(indices))
    assert_same_bits(y, table.run(indices, packed, threads=2))


def test_it_has_the_bits_of_the_core() -> None:
    r = np.random.default_rng(4)
    values = r.standard_normal((300, 100)).astype(np.float32)
    indices = r.integers(0, 300, (7, 90))
    layer = Embedding.from_float(values)
    table = Table(300, 100)
    table.held = quantize_weight(values, Grid.of(QType.INT8, symmetric=True), 0)
    assert_same_bits(table.run(indices), layer(indices))
    assert_same_bits(table.run(indices, packed=1), layer(indices))


@both_layouts
@pytest.mark.parametrize("shape", [(), (0,), (4,), (2, 0, 3), (2, 1, 2, 3)], ids=str)
def test_indices_of_any_shape(shape: tuple[int, ...], packed: int) -> None:
    table = Table(20, 12)
    indices = np.random.default_rng(1).integers(0, 20, shape)
    assert_same_bits(table.run(np.asarray(indices), packed), table.expected(np.asarray(indices)))


@both_layouts
def test_rows_of_a_higher_rank(packed: int) -> None:
    table = Table(9, 24)
    indices = np.array([[3, -9], [8, 0]])
    attributes = table.attributes(packed, shape=[2, 3, 4])
    y = run("Embedding", {"indices": indices}, table.constants(packed), **attributes)
    assert_same_bits(y, table.expected(indices).reshape(2, 2, 2, 3, 4))


@both_layouts
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("wrong", [20, -21, 2**31 - 1, -(2**31)])
def test_an_index_that_no_row_has_is_named(wrong: int, dtype: type, packed: int) -> None:
    indices = np.array([[0, -1, 19], [5, wrong, 40]], dtype)
    message = f"indices: position 4 holds {wrong}, and the table has 20 rows"
    with pytest.raises(REFUSALS, match=rf"node 'layer' \(ai.octavo.Embedding\): {message}"):
        Table(20, 12).run(indices, packed)


def test_shapes_are_inferred() -> None:
    table, dtypes = Table(9, 24), {"indices": np.dtype(np.int64)}
    shapes = {"indices": ["batch", 7]}
    found = inferred("Embedding", dtypes, shapes, table.constants(), **table.attributes())
    assert found == ["batch", 7, 24]
    attributes = table.attributes(shape=[4, 6])
    found = inferred("Embedding", dtypes, shapes, table.constants(), **attributes)
    assert found == ["batch", 7, 4, 6]


@both_layouts
@pytest.mark.parametrize(
    "change,message",
    [
        ({"V": 10}, "W has shape|W_scale has shape"),
        ({"D": 0}, "the attribute D is 0"),
        ({"D": 25}, "W has shape"),
        ({"D": 2**31 - 1, "V": 2**31 - 1}, "is too large"),
        ({"shape": [5, 5]}, r"the attribute shape is \[5, 5\]; its product has to be D, 24"),
        ({"shape": [-4, -6]}, r"the attribute shape is \[-4\]; its product"),
        ({"weight_format": "int4"}, "weights are in the format 'int4', which this release"),
        ({"checksum": 1}, "its checksum differs"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_wrong_attributes_are_refused(change: dict[str, Any], message: str, packed: int) -> None:
    table = Table(9, 24)
    attributes = {**table.attributes(packed), **change}
    dtypes = {"indices": np.dtype(np.int64)}
    with pytest.raises(REFUSALS, match=rf"node 'layer' \(ai.octavo.Embedding\): .*({message})"):
        session("Embedding", dtypes, {"indices": ["n"]}, table.constants(packed), **attributes)


def test_other_indices_are_refused() -> None:
    with pytest.raises(REFUSALS, match="indices is float32; it has to be int32 or int64"):
        Table(9, 24).run(np.zeros(3, np.float32))
    with pytest.raises(REFUSALS, match="more than 8 dimensions"):
        Table(9, 24).run(np.zeros((1,) * 8, np.int64))
