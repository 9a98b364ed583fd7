"""Einsum of an activation and a constant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from octavo.errors import NothingQuantizedError
from octavo.onnx import session
from octavo.onnx.operators.einsum import reference
from tests.graphs import FLOAT, INT8, convert, error, text, values, weight

# equation, shape of x, shape of the weight
EQUATIONS = {
    "matrix": ("bsk,kn->bsn", (2, 3, 32), (32, 24)),
    "transposed matrix": ("bsk,nk->bsn", (2, 3, 32), (24, 32)),
    "heads": ("bsd,dhk->bshk", (2, 3, 32), (32, 4, 6)),
    "heads first": ("bsd,dhk->bhsk", (2, 3, 32), (32, 4, 6)),
    "heads turned": ("bsd,dhk->bhks", (2, 3, 32), (32, 4, 6)),
    "heads joined": ("bshk,hkd->bsd", (2, 3, 4, 8), (4, 8, 24)),
    "summed first": ("kb,kn->nb", (32, 5), (32, 24)),
}
NOT_LINEAR = {
    "a product for each value": ("bhk,hkn->bhn", (2, 4, 8), (4, 8, 6)),
    "a sum of x alone": ("bsk,kn->bn", (2, 3, 32), (32, 24)),
    "a diagonal": ("kk,kn->kn", (32, 32), (32, 24)),
}


def _model(
    equation: str, x: tuple[Any, ...], w: tuple[int, ...], *, swapped: bool = False
) -> onnx.ModelProto:
    inputs = "x, w"
    if swapped:
        given, _, result = equation.partition("->")
        equation, inputs = ",".join(reversed(given.split(","))) + "->" + result, "w, x"
    body = f'y = Einsum <equation = "{equation}"> ({inputs})'
    weights = {"w": weight(*w, spread=False)}
    return text(body, f"float[{', '.join(map(str, x))}] x", weights=weights)


OPTIONS: list[dict[str, Any]] = [
    {}, {"cpu": "any"}, {"target": "native"}, {"recipe": "int8-per-tensor"},
]  # fmt: skip
CASES = [
    (name, OPTIONS[(i + swapped) % 4], swapped)
    for i, name in enumerate([*EQUATIONS, *EQUATIONS])
    for swapped in (False, True)
]


@pytest.mark.parametrize(("name", "options", "swapped"), CASES)
def test_einsum_with_a_constant_is_a_linear_layer(
    name: str, options: dict[str, Any], swapped: bool, tmp_path: Path
) -> None:
    equation, x_shape, w_shape = EQUATIONS[name]
    model = _model(equation, x_shape, w_shape, swapped=swapped)
    converted = convert(model, tmp_path, **options)
    (layer,) = converted.report.layers
    assert layer.quantized and layer.layer.kind.value == "linear"
    assert not [n for n in converted.proto.graph.node if n.op_type == "Einsum"]
    x, w = values(*x_shape), weight(*w_shape, spread=False)
    (y,) = session(converted.path).run(None, {"x": x})
    wanted = reference(equation, x, w)
    assert y.shape == wanted.shape
    assert error(y, wanted) < (4 * INT8 if "recipe" in options else INT8)


def test_a_large_weight_is_stored_as_integers_alone(tmp_path: Path) -> None:
    converted = convert(_model("bsd,dhk->bshk", (2, 3, 64), (64, 8, 16)), tmp_path)
    floats = [i for i in converted.proto.graph.initializer if i.data_type == FLOAT]
    assert sum(int(np.prod(i.dims)) for i in floats) < 64 * 8 * 16 / 4


@pytest.mark.parametrize("name", NOT_LINEAR)
def test_other_sums_stay_as_they_are(name: str, tmp_path: Path) -> None:
    equation, x_shape, w_shape = NOT_LINEAR[name]
    with pytest.raises(NothingQuantizedError):
        convert(_model(equation, x_shape, w_shape), tmp_path)


BROADCAST = {
    "the input": ((2, 1), (32, 24)),
    "the weight": ((2, 32), (1, 24)),
    "an input of unknown size": ((2, "k"), (32, 24)),
}


@pytest.mark.parametrize("name", BROADCAST)
def test_an_axis_that_may_be_repeated_stays_float(name: str, tmp_path: Path) -> None:
    """Einsum repeats an axis of size 1, which a product does not."""
    x_shape, w_shape = BROADCAST[name]
    converted = convert(_model("bk,kn->bn", x_shape, w_shape), tmp_path, allow_nothing=True)
    (layer,) = converted.report.layers
    assert not layer.quantized and "is repeated" in layer.reason


@pytest.mark.parametrize("equation", ["bk,kn", "...k,kn->...n"])
def test_an_equation_of_another_form_is_said_to_be_one(equation: str, tmp_path: Path) -> None:
    converted = convert(_model(equation, (2, 32), (32, 24)), tmp_path, allow_nothing=True)
    (layer,) = converted.report.layers
    assert not layer.quantized and "is not the product of rows" in layer.reason


@pytest.mark.parametrize("target", ["portable", "native"])
def test_no_rows_at_all(target: str, tmp_path: Path) -> None:
    equation, _, w_shape = EQUATIONS["heads joined"]
    model = _model(equation, ("b", 3, 4, 8), w_shape)
    converted = convert(model, tmp_path, target=target)
    (y,) = session(converted.path).run(None, {"x": values(0, 3, 4, 8)})
    assert y.shape == (0, 3, 24)


@pytest.mark.parametrize("target", ["portable", "native"])
def test_a_matrix_is_stored_once_for_all_that_read_it(target: str, tmp_path: Path) -> None:
    body = 'm = MatMul (x, w) y = Einsum <equation = "bk,kn->bn"> (x, w)'
    weights = {"w": weight(64, 48, spread=False)}
    model = text(body, "float[b, 64] x", "float[] m, float[] y", weights)
    converted = convert(model, tmp_path, target=target)
    assert all(layer.quantized for layer in converted.report.layers)
    integers = [i for i in converted.proto.graph.initializer if i.data_type in (2, 3)]
    assert sum(int(np.prod(i.dims)) >= 64 * 48 for i in integers) == 1
