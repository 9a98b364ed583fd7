"""Conv in the native target: which convolutions, and what they compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo.core.convolution import unpack_filters
from tests.graphs import EXACT, FLOAT, FLOAT16, INT8, Array, Converted, assert_close, values, weight
from tests.graphs import run as run_float
from tests.native_target.forms import agrees, constant, ours, run, spelt
from tests.native_target.forms import convert as convert_by_default
from tests.native_target.forms import convert_convolutions as convert
from tests.onnx.references.conv import reference_native as reference

DENSE = (24, 16, 3, 3)


def convolution(w: Array, bias: Array | None = None, options: str = "", dtype: int = FLOAT) -> Any:
    stored = {"w": w} if bias is None else {"w": w, "b": bias}
    text = f"y=Conv(x,{','.join(stored)}{options and f',{options}'})"
    return spelt(text, {"x": (dtype, [None] * w.ndim)}, stored, {"y": (dtype, None)})


def filters(done: Converted) -> tuple[Array, Array]:
    """The integers of the one convolution, and its scales."""
    (layer,) = ours(done)
    q = unpack_filters(constant(done, layer.input[1]).view(np.uint8), DENSE)
    return q, constant(done, layer.input[2])


def test_it_computes_its_reference(tmp_path: Path) -> None:
    w, bias, x = weight(*DENSE, axis=0), values(24), values(2, 16, 9, 11)
    x[1] = np.abs(x[1]) * 50
    given = convolution(w, bias, "pads:1/0/2/1")
    done = convert(given, tmp_path)
    (y,) = run(done, {"x": x})
    expected = reference(x, *filters(done), bias, [1, 0, 2, 1])
    assert_close(y, expected.astype(np.float32), EXACT)
    size = np.sqrt(np.square(w).sum((1, 2, 3)))[:, None, None]
    assert_close(y, run_float(given, {"x": x})[0], INT8, size)


@pytest.mark.parametrize(
    ("shape", "x_shape", "options"),
    [
        ((32, 24, 5), (3, 24, 41), "kernel_shape:5/,strides:2/,dilations:3/,pads:2/5"),
        ((32, 16, 3, 3), (1, 32, 12, 9), "kernel_shape:3/3,group:2,strides:2/1"),
        ((64, 64, 1, 1), (2, 64, 7, 7), "auto_pad:VALID"),
        ((16, 16, 2, 4), (2, 16, 10, 13), "auto_pad:SAME_LOWER,strides:1/3"),
        ((16, 16, 3, 3), (1, 16, 8, 8), "auto_pad:NOTSET,pads:1/1/1/1"),
    ],
    ids=["one axis", "groups", "pointwise", "same", "notset"],
)
def test_attributes_are_taken_over(
    tmp_path: Path, shape: tuple[int, ...], x_shape: tuple[int, ...], options: str
) -> None:
    given = convolution(weight(*shape, spread=False), values(shape[0]), options)
    done = convert(given, tmp_path)
    assert [n.op_type for n in ours(done)] == ["Conv"]
    agrees(given, done, {"x": values(*x_shape)})


def test_float16_comes_and_goes(tmp_path: Path) -> None:
    w, bias = weight(*DENSE, spread=False).astype(np.float16), values(24).astype(np.float16)
    given = convolution(w, bias, dtype=FLOAT16)
    agrees(given, convert(given, tmp_path), {"x": values(1, 16, 6, 6).astype(np.float16)})


def test_filters_are_stored_once_and_no_constant_is_left_unread(tmp_path: Path) -> None:
    text, stored = "h=Conv(x,w); y=Conv(h,w)", {"w": weight(16, 16, 3, 3)}
    done = convert(spelt(text, {"x": [1, 16, 9, 9]}, stored), tmp_path)
    first, second = ours(done)
    assert first.input[1:3] == second.input[1:3]
    read = {name for n in done.proto.graph.node for name in n.input}
    assert {i.name for i in done.proto.graph.initializer} <= read


def test_depthwise_ones_stay_float_until_asked_for(tmp_path: Path) -> None:
    stored = {"w": weight(16, 1, 3, 3, axis=0), "v": weight(16, 16, 3, 3)}
    given = spelt("h=Conv(x,w,group:16,name:thin); y=Conv(h,v)", {"x": None}, stored)
    done = convert_by_default(given, tmp_path, allow_nothing=True)
    assert "one channel each" in done.outcome("thin").reason
    asked = convert(given, tmp_path)
    assert len(ours(asked)) == 2
    agrees(given, asked, {"x": values(1, 16, 9, 9)}, 2 * INT8)


def chain(count: int) -> Any:
    """`count` convolutions with Relu between, called conv0, conv1, ..."""
    names = ["x", *(f"r{i}" for i in range(1, count)), "y"]
    text = "; ".join(
        f"c{i}=Conv({names[i]},w{i},name:conv{i}); {names[i + 1]}=Relu(c{i})" for i in range(count)
    )
    stored = {f"w{i}": weight(16, 16, 3, 3) for i in range(count)}
    return spelt(text, {"x": [1, 16, 20, 20]}, stored)


@pytest.mark.parametrize(
    ("recipe", "notes"),
    [
        ("int8-accurate", ["symmetric weights", "activations per image"]),
        ("int8-block", ["convolutions of target native have no blocks"]),
    ],
)
def test_recipes_hold_them_per_channel_and_image(
    tmp_path: Path, recipe: str, notes: list[str]
) -> None:
    done = convert(chain(3), tmp_path, recipe=recipe)
    assert len(ours(done)) == 1
    middle = done.outcome("conv1")
    assert middle.scheme == "int8 per channel, activations per row"
    assert all(note in " ".join(middle.notes) for note in notes)


def test_a_computed_bias_leaves_it_float(tmp_path: Path) -> None:
    inputs = {"x": [None] * 4, "b": [24]}
    given = spelt("y=Conv(x,w,b)", inputs, {"w": weight(*DENSE)})
    done = convert(given, tmp_path, allow_nothing=True)
    assert "bias is computed" in done.report.layers[0].reason
