"""Products of two activations in the native target: only when asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.recipe import Kind, Recipe, Rule, Scheme
from tests.graphs import INT8, assert_close, values
from tests.native_target.forms import agrees, attributes, convert, ours, run, spelt
from tests.onnx.references.linear import reference_of_activations as reference

ASKED = {"recipe": Recipe("products", Scheme(), (Rule(Scheme(), kind=Kind.ACTIVATION_MATMUL),))}
A, B = values(9, 64), values(64, 20, seed=5)


def product(text: str = "y=MatMul(a,b)", a: Any = (None,) * 2, b: Any = (None,) * 2) -> Any:
    """Of inputs of these shapes."""
    return spelt(text, {"a": a, "b": b}, {"c": values(20, seed=8)})


def test_it_computes_its_reference(tmp_path: Path) -> None:
    a, b = values(2, 3, 9, 64), values(3, 64, 21, seed=5) * np.geomspace(0.1, 10, 21, dtype="f")
    done = convert(product(a=[None] * 4, b=[None] * 3), tmp_path, **ASKED)
    assert done.ops == ["MatMul"] and len(ours(done)) == 1
    (y,) = run(done, {"a": a, "b": b})
    size = np.linalg.norm(b, axis=-2, keepdims=True)
    # Where float32 and float64 round to different integers, one step of one input.
    assert_close(y, reference(a, b).astype(np.float32), 1e-3, size)
    assert_close(y, np.matmul(a, b), INT8, size)


def test_it_is_off_by_default(tmp_path: Path) -> None:
    done = convert(product(), tmp_path, allow_nothing=True)
    assert not ours(done)
    assert "a product of two activations" in done.report.layers[0].reason
    option = {"MatMulConstBOnly": False}
    assert len(ours(convert(product(), tmp_path, extra_options=option))) == 1


@pytest.mark.parametrize(
    ("perm", "shape", "transposed", "ops"),
    [
        ("0/1/3/2", (2, 3, 20, 64), 1, ["MatMul"]),
        ("0/2/3/1", (2, 20, 3, 64), 1, ["Transpose", "MatMul"]),
        ("0/2/1/3", (2, 64, 3, 20), 0, ["Transpose", "MatMul"]),
    ],
)
def test_a_transpose_of_the_last_axes_is_taken_in(
    tmp_path: Path, perm: str, shape: tuple[int, ...], transposed: int, ops: list[str]
) -> None:
    axes = (None,) * 4
    given = product(f"t=Transpose(b,perm:{perm}); y=MatMul(a,t)", axes, axes)
    done = convert(given, tmp_path, **ASKED)
    assert done.ops == ops
    assert attributes(ours(done)[0])["transpose_b"] == transposed
    agrees(given, done, {"a": values(2, 3, 9, 64), "b": values(*shape, seed=5)})


def test_a_transpose_that_others_read_stays(tmp_path: Path) -> None:
    text, inputs = "t=Transpose(b,perm:1/0); y=MatMul(a,t)", {"a": [None, 64], "b": [None, 64]}
    given = spelt(text, inputs, {}, ["t", "y"])
    done = convert(given, tmp_path, **ASKED)
    t, y = run(done, {"a": A, "b": B.T})
    assert np.array_equal(t, B)
    assert_close(y, A @ B, INT8)


TURNED = "transA:1,transB:1,alpha:0.5"


@pytest.mark.parametrize(
    ("text", "turned"),
    [
        (f"y=Gemm(a,b,{TURNED})", True),
        (f"y=ms:FusedMatMul(a,b,{TURNED})", True),
        ("y=Gemm(a,b,c,beta:2.0)", False),
    ],
)
def test_gemm_and_fused_matmul(tmp_path: Path, text: str, turned: bool) -> None:
    shapes: Any = (None, None) if turned else ([None, 64], [64, 20])
    given = product(text, *(s or [None] * 2 for s in shapes))
    done = convert(given, tmp_path, **ASKED)
    assert [n.op_type for n in ours(done)] == ["MatMul"]
    agrees(given, done, {"a": A.T, "b": B.T} if turned else {"a": A, "b": B})


def test_what_the_operator_cannot_hold_stays_float(tmp_path: Path) -> None:
    for given, reason in (
        (product(a=[None]), "with a vector"),
        (product("y=ms:FusedMatMul(a,b,transA:1)", None, None), "whose rank"),
    ):
        done = convert(given, tmp_path, allow_nothing=True, **ASKED)
        assert not ours(done) and reason in str(done.report.layers[0].reason)


def test_operands_whose_rank_nobody_states(tmp_path: Path) -> None:
    given = product(a=None, b=None)
    agrees(given, convert(given, tmp_path, **ASKED), {"a": values(2, 9, 64), "b": B})
