"""Conv in the native target: which convolutions, and what they compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.core.convolution import unpack_filters
from octavo.onnx import inspect
from octavo.recipe import FLOAT, Kind, Recipe, Rule, Scheme
from tests.graphs import (
    EXACT,
    FLOAT16,
    INT8,
    Array,
    assert_close,
    build,
    error,
    node,
    values,
    weight,
)
from tests.graphs import (
    FLOAT as F32,
)
from tests.graphs import convert as convert_to
from tests.graphs import run as run_float
from tests.native_target.forms import attributes, constant, ours, run
from tests.native_target.forms import convert as convert_by_default
from tests.native_target.forms import convert_convolutions as convert
from tests.onnx.references.conv import reference_native as reference


def convolution(w: Array, bias: Array | None = None, *, dtype: int = F32, **options: Any) -> Any:
    weights = {"w": w} if bias is None else {"w": w, "b": bias}
    return build(
        [node("Conv", ["x", *weights], ["y"], **options)],
        {"x": (dtype, [None] * w.ndim)},
        {"y": (dtype, None)},
        weights,
    )


DENSE = (24, 16, 3, 3)


def test_it_computes_its_reference(tmp_path: Path) -> None:
    w, bias, x = weight(*DENSE, axis=0), values(24), values(2, 16, 9, 11)
    x[1] = np.abs(x[1]) * 50
    done = convert(convolution(w, bias, pads=[1, 0, 2, 1]), tmp_path)
    (layer,) = ours(done)
    q = unpack_filters(constant(done, layer.input[1]).view(np.uint8), DENSE)
    scale = constant(done, layer.input[2])
    (y,) = run(done, {"x": x})
    expected = reference(x, q, scale, bias, [1, 0, 2, 1])
    assert_close(y, expected.astype(np.float32), EXACT)
    assert_close(y, run_float(convolution(w, bias, pads=[1, 0, 2, 1]), {"x": x})[0], INT8,
                 np.sqrt(np.square(w).sum((1, 2, 3)))[:, None, None])  # fmt: skip


def test_nan_stays_in_its_image_as_the_reference_says(tmp_path: Path) -> None:
    w, x = weight(*DENSE, axis=0), values(2, 16, 5, 5)
    x[0, 3, 2, 2] = np.inf
    done = convert(convolution(w), tmp_path)
    (layer,) = ours(done)
    q = unpack_filters(constant(done, layer.input[1]).view(np.uint8), DENSE)
    expected = reference(x, q, constant(done, layer.input[2]), np.zeros(24))
    (y,) = run(done, {"x": x})
    assert np.isnan(y[0]).all() and np.isnan(expected[0]).all()
    assert_close(y[1], expected[1].astype(np.float32), EXACT)


@pytest.mark.parametrize(
    "shape,x_shape,options",
    [
        ((32, 24, 5), (3, 24, 41), {"strides": [2], "dilations": [3], "pads": [2, 5]}),
        ((32, 16, 3, 3), (1, 32, 12, 9), {"group": 2, "strides": [2, 1]}),
        ((64, 64, 1, 1), (2, 64, 7, 7), {"auto_pad": "VALID"}),
        ((16, 16, 2, 4), (2, 16, 10, 13), {"auto_pad": "SAME_LOWER", "strides": [1, 3]}),
        ((16, 16, 3, 3), (1, 16, 8, 8), {"auto_pad": "NOTSET", "pads": [1, 1, 1, 1]}),
    ],
    ids=["one axis", "groups", "pointwise", "same", "notset"],
)
def test_attributes_are_taken_over(
    tmp_path: Path, shape: tuple[int, ...], x_shape: tuple[int, ...], options: dict[str, Any]
) -> None:
    w, x = weight(*shape, spread=False), values(*x_shape)
    model = convolution(w, values(shape[0]), kernel_shape=list(shape[2:]), **options)
    done = convert(model, tmp_path)
    assert [n.op_type for n in ours(done)] == ["Conv"]
    assert_close(run(done, {"x": x})[0], run_float(model, {"x": x})[0], INT8)


def test_float16_comes_and_goes(tmp_path: Path) -> None:
    w, x = weight(*DENSE, spread=False).astype(np.float16), values(1, 16, 6, 6).astype(np.float16)
    model = convolution(w, values(24).astype(np.float16), dtype=FLOAT16)
    done = convert(model, tmp_path)
    (y,) = run(done, {"x": x})
    assert y.dtype == np.float16
    assert error(y, run_float(model, {"x": x})[0]) < INT8


def test_the_integers_are_those_of_the_portable_target(tmp_path: Path) -> None:
    model = convolution(weight(*DENSE, axis=0))
    (layer,) = ours(native := convert(model, tmp_path))
    q = unpack_filters(constant(native, layer.input[1]).view(np.uint8), DENSE)
    portable = convert_to(model, tmp_path, op_types_to_quantize=["Conv"])
    (product,) = (n for n in portable.proto.graph.node if n.op_type == "ConvInteger")
    assert np.array_equal(q, constant(portable, product.input[1]).astype(np.int16) - 128)


def test_filters_are_stored_once(tmp_path: Path) -> None:
    w = weight(16, 16, 3, 3)
    model = build(
        [node("Conv", ["x", "w"], ["h"]), node("Conv", ["h", "w"], ["y"])],
        {"x": (F32, [1, 16, 9, 9])},
        ["y"],
        {"w": w},
    )
    first, second = ours(convert(model, tmp_path))
    assert first.input[1:3] == second.input[1:3]


def test_no_constant_is_left_unread(tmp_path: Path) -> None:
    done = convert(convolution(weight(*DENSE)), tmp_path)
    read = {name for n in done.proto.graph.node for name in n.input}
    assert {i.name for i in done.proto.graph.initializer} <= read


# --- which ---


def test_depthwise_ones_stay_float_until_asked_for(tmp_path: Path) -> None:
    w, x = weight(16, 1, 3, 3, axis=0), values(1, 16, 9, 9)
    model = build(
        [node("Conv", ["x", "w"], ["h"], group=16, name="thin"), node("Conv", ["h", "v"], ["y"])],
        {"x": (F32, None)},
        ["y"],
        {"w": w, "v": weight(16, 16, 3, 3)},
    )
    done = convert_by_default(model, tmp_path, allow_nothing=True)
    assert "filters see one channel each is float by default" in done.outcome("thin").reason
    asked = convert(model, tmp_path)
    assert len(ours(asked)) == 2
    assert error(run(asked, {"x": x})[0], run_float(model, {"x": x})[0]) < 2 * INT8


def test_a_recipe_that_names_convolutions_is_followed(tmp_path: Path) -> None:
    model = convolution(weight(*DENSE))
    rules = (Rule(FLOAT, kind=Kind.CONV, reason="not these"),)
    done = convert(model, tmp_path, recipe=Recipe("own", Scheme(), rules), allow_nothing=True)
    assert [o.reason for o in done.report.layers] == ["not these"]
    assert not ours(done)


def test_accurate_recipes_hold_them_per_channel_and_image(tmp_path: Path) -> None:
    done = convert(chain(3), tmp_path, recipe="int8-accurate")
    assert len(ours(done)) == 1
    notes = " ".join(done.outcome("conv1").notes)
    assert "symmetric weights" in notes and "activations per image" in notes


def test_blocks_become_channels_and_images(tmp_path: Path) -> None:
    done = convert(chain(3), tmp_path, recipe="int8-block")
    assert len(ours(done)) == 1
    middle = done.outcome("conv1")
    assert middle.scheme == "int8 per channel, activations per row"
    assert "convolutions of target native have no blocks" in " ".join(middle.notes)


def chain(count: int) -> Any:
    """`count` convolutions with Relu between, called conv0, conv1, ..."""
    nodes = []
    for i in range(count):
        nodes += [
            node("Conv", [f"r{i}" if i else "x", f"w{i}"], [f"c{i}"], name=f"conv{i}"),
            node("Relu", [f"c{i}"], [f"r{i + 1}"]),
        ]
    weights = {f"w{i}": weight(16, 16, 3, 3) for i in range(count)}
    return build(nodes, {"x": (F32, [1, 16, 20, 20])}, [f"r{count}"], weights)


def test_inspect_says_the_same(tmp_path: Path) -> None:
    model = chain(3)
    native = inspect(model, target="native").decisions
    assert [d.scheme.is_float for d in native] == [True, False, True]
    assert all(d.scheme.is_float for d in inspect(model).decisions)


def test_a_computed_bias_leaves_it_float(tmp_path: Path) -> None:
    model = build(
        [node("Conv", ["x", "w", "b"], ["y"])],
        {"x": (F32, [None] * 4), "b": (F32, [24])},
        ["y"],
        {"w": weight(*DENSE)},
    )
    done = convert(model, tmp_path, allow_nothing=True)
    assert done.report.layers[0].reason == "its bias is computed"


def test_the_attributes_of_the_node_are_complete(tmp_path: Path) -> None:
    (layer,) = ours(convert(convolution(weight(*DENSE), pads=[1, 1, 1, 1]), tmp_path))
    found = attributes(layer)
    assert found["M"] == 24 and found["C"] == 16 and found["group"] == 1
    assert found["kernel_shape"] == [3, 3] and found["pads"] == [1, 1, 1, 1]
    assert found["activation"] == b"none"
