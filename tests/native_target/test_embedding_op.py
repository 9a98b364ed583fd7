"""ai.octavo.Embedding: rows of an int8 table inside ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octavo.core.kernels import checksum, pack, quantize_weight
from octavo.core.qparams import Grid, QType
from tests.core.statement import assert_same_bits
from tests.graphs import INT64
from tests.native_target.nodes import inferred, refuses, run

both_layouts = pytest.mark.parametrize("packed", [0, 1], ids=["rows", "packed"])


class Table:
    """A quantized table, and what a node needs of it."""

    def __init__(self, rows: int, dim: int, packed: int = 0, *, symmetric: bool = True) -> None:
        r = np.random.default_rng([rows, dim])
        values = r.standard_normal((rows, dim)) * 10 ** r.uniform(-3, 3, (rows, 1))
        grid = Grid.of(QType.INT8, symmetric=symmetric)
        self.held = quantize_weight(values.astype(np.float32), grid, 0)
        self.rows, self.dim, self.packed = rows, dim, packed

    def constants(self) -> dict[str, np.ndarray]:
        q = self.held.q
        if self.packed:
            shape = (-(-self.rows // 16), -(-self.dim // 4), 16, 4)
            q = pack(q).view(np.int8).reshape(shape)
        zero = self.held.qparams.zero_point.astype(np.int8)
        return {"W": q, "W_scale": self.held.qparams.scale, "W_zero_point": zero}

    def attributes(self) -> dict[str, Any]:
        digest = checksum(self.constants()["W"].view(np.uint8).reshape(-1))
        return {"V": self.rows, "D": self.dim, "packed": self.packed, "checksum": digest}

    def expected(self, indices: np.ndarray) -> np.ndarray:
        """One float32 product an element, so that these are the bits."""
        zero = self.held.qparams.zero_point[:, None]
        steps = self.held.q.astype(np.float32) - zero.astype(np.float32)
        rows: np.ndarray = (steps * self.held.qparams.scale[:, None])[indices]
        return rows

    def run(self, indices: np.ndarray, threads: int = 1, **more: Any) -> np.ndarray:
        attributes = self.attributes() | more
        return run("Embedding", {"indices": indices}, self.constants(), threads, **attributes)


@both_layouts
@pytest.mark.parametrize(
    ("rows", "dim", "symmetric", "dtype", "shape"),
    [
        (1, 1, True, np.int32, (3, 50)),
        (5, 3, False, np.int64, (3, 50)),
        (16, 4, True, np.int64, (3, 50)),
        (37, 70, False, np.int32, (200,)),
        (40, 384, True, np.int32, (2, 1, 2, 3)),
        (513, 17, False, np.int64, (2, 0, 3)),
        (20, 12, False, np.int64, ()),
        (20, 12, True, np.int32, (0,)),
    ],
)
def test_rows_are_dequantized(
    rows: int, dim: int, symmetric: bool, dtype: type, shape: tuple[int, ...], packed: int
) -> None:
    table = Table(rows, dim, packed, symmetric=symmetric)
    indices = np.asarray(np.random.default_rng(1).integers(-rows, rows, shape), dtype)
    y = table.run(indices)
    assert_same_bits(y, table.expected(indices))
    assert_same_bits(y, table.run(indices, threads=2))


@both_layouts
def test_rows_of_a_higher_rank(packed: int) -> None:
    table, indices = Table(9, 24, packed), np.array([[3, -9], [8, 0]])
    y = table.run(indices, shape=[2, 3, 4])
    assert_same_bits(y, table.expected(indices).reshape(2, 2, 2, 3, 4))


def test_shapes_are_inferred() -> None:
    table, shapes = Table(9, 24), {"indices": ["batch", 7]}
    for more, rows in (({}, [24]), ({"shape": [4, 6]}, [4, 6])):
        given = table.attributes() | more
        found = inferred("Embedding", shapes, table.constants(), {"indices": INT64}, **given)
        assert found == ["batch", 7, *rows]


ZEROS = np.zeros(3, np.int64)


@both_layouts
@pytest.mark.parametrize(
    ("indices", "change", "message"),
    [
        *(
            (np.array([[0, -1, 8], [5, i, last]], dtype), {}, f"indices: position 4 holds {i}.* 9")
            for i in (9, -10, 2**31 - 1, -(2**31))
            for dtype, last in ((np.int32, 8), (np.int64, 40))  # the only one, and the first
        ),
        (np.zeros(3, np.float32), {}, "indices is float32"),
        (np.zeros((1,) * 8, np.int64), {}, "more than 8 dimensions"),
        (ZEROS, {"V": 10}, "(W|W_scale) has shape"),
        (ZEROS, {"D": 0}, "the attribute D is 0"),
        (ZEROS, {"D": 25}, "W has shape"),
        (ZEROS, {"D": 2**31 - 1, "V": 2**31 - 1}, "is too large"),
        (ZEROS, {"shape": [5, 5]}, r"shape is \[5, 5\]; its product has to be D, 24"),
        (ZEROS, {"shape": [-4, -6]}, r"shape is \[-4\]; its product"),
        (ZEROS, {"weight_format": "int4"}, "the format 'int4'"),
        (ZEROS, {"checksum": 1}, "its checksum differs"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_does_not_fit_is_refused(
    indices: np.ndarray, change: dict[str, Any], message: str, packed: int
) -> None:
    table = Table(9, 24, packed)
    attributes = table.attributes() | change
    refuses(message, "Embedding", {"indices": indices}, table.constants(), **attributes)
