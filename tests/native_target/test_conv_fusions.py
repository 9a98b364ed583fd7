"""Activations and pools behind convolutions in the native target: one node, the same function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from octavo.graph.rewrite.activation import ACTIVATIONS
from octavo.graph.rewrite.pool import reference
from tests.graphs import EXACT, FLOAT, FLOAT16, Array, Converted, assert_close, values, weight
from tests.native_target.forms import agrees, attributes, ours, run, spelt
from tests.native_target.forms import convert_convolutions as convert

N = 24
REFERENCES = {rule.name: rule.reference for rule in ACTIVATIONS}
NUMBERS = {"half": 0.5, "one": 1.0, "root": 2**0.5}
STORED: dict[str, Array] = {
    "w": weight(N, 16, 3, 3, axis=0, spread=False),
    "w1": weight(N, 16, 5, axis=0, spread=False),
    "depthwise": weight(16, 1, 3, 3, axis=0, spread=False),
    "b": values(N),
    "channels": values(N, 1, 1),
    **{name: np.array(number, np.float32) for name, number in NUMBERS.items()},
}


def model(
    tail: str,
    *,
    window: str = "",
    conv: str = "Conv(x,w,b",
    shape: Any = ("n", 16, "h", "w"),
    outputs: Any = ("y",),
    dtype: int = FLOAT,
) -> onnx.ModelProto:
    """c = Conv(x, w, b) and `tail` from it to y; `window` are attributes of the convolution."""
    text = f"c={conv}{window and f',{window}'}); {tail}"
    if dtype == FLOAT:
        return spelt(text, {"x": shape}, STORED, outputs, 21)
    half = {name: array.astype(np.float16) for name, array in STORED.items()}
    return spelt(text, {"x": (dtype, shape)}, half, dict.fromkeys(outputs, (dtype, None)), 21)


def image(*shape: int) -> Array:
    return values(*(shape or (2, 16, 9, 7)))


def check(given: onnx.ModelProto, folder: Path, x: Array | None = None) -> Converted:
    done = convert(given, folder)
    agrees(given, done, {"x": image() if x is None else x})
    return done


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Array:
    """What the convolution gives of `image()` without anything behind it."""
    done = convert(model("y=Identity(c)"), tmp_path_factory.mktemp("alone"))
    return run(done, {"x": image()})[0]


FORMS = {
    "relu": ("relu", "y=Relu(c)"),
    "tanh": ("tanh", "y=Tanh(c)"),
    "sigmoid": ("sigmoid", "y=Sigmoid(c)"),
    "gelu": ("gelu", "y=Gelu(c)"),
    "gelu with erf": ("gelu", "d=Div(c,root); e=Erf(d); a=Add(e,one); m=Mul(c,a); y=Mul(m,half)"),
    "gelu with tanh": ("gelu_tanh", "y=Gelu(c,approximate:tanh)"),
    "fast gelu": ("gelu_tanh", "y=ms:FastGelu(c)"),
    "silu": ("silu", "s=Sigmoid(c); y=Mul(s,c)"),
    "quick gelu": ("silu", "y=ms:QuickGelu(c,alpha:1.0)"),
}


@pytest.mark.parametrize("form", FORMS)
def test_an_activation_is_one_with_the_convolution(tmp_path: Path, form: str, alone: Array) -> None:
    name, tail = FORMS[form]
    done = check(model(tail), tmp_path)
    (layer,) = done.proto.graph.node
    assert (layer.domain, layer.op_type) == ("ai.octavo", "Conv")
    assert attributes(layer)["activation"] == name
    (y,) = run(done, {"x": image()})
    assert_close(y, REFERENCES[name](alone).astype(np.float32), EXACT)
    if name == "relu":
        assert np.array_equal(y, np.maximum(alone, 0.0))


POOL = "kernel_shape:2/2,strides:2/2"
PARTED = {
    "clip": "y=Clip(c,half,one)",
    "leaky relu": "y=LeakyRelu(c,alpha:0.1)",
    "another alpha": "y=ms:QuickGelu(c,alpha:1.702)",
    "a factor a channel": "p=Mul(c,channels); y=Relu(p)",
    "read by another node": "r=Relu(c); y=Sub(r,c)",
    "a pool that says where": f"m|where=MaxPool(c,{POOL}); f=Cast(where,to:1); y=Add(m,f)",
    "a pool read by another node": "m=MaxPool(c,kernel_shape:1/1,strides:1/1); y=Sub(m,c)",
}


@pytest.mark.parametrize("case", PARTED)
def test_what_stays_apart(tmp_path: Path, case: str) -> None:
    given = model(PARTED[case])
    # Where the largest number was may be another in 8 bits.
    done = convert(given, tmp_path) if "where" in case else check(given, tmp_path)
    assert done.ops == [n.op_type for n in given.graph.node]
    assert attributes(ours(done)[0])["activation"] == "none"


@pytest.mark.parametrize(
    ("tail", "ops"),
    [
        ("r=Relu(c); y=Tanh(r)", ["Conv", "Tanh"]),
        (f"m=MaxPool(c,{POOL}); y=Gelu(m)", ["Conv", "Gelu"]),
    ],
    ids=["one activation", "behind a pool"],
)
def test_what_is_behind_is_taken_in_part(tmp_path: Path, tail: str, ops: list[str]) -> None:
    assert check(model(tail), tmp_path).ops == ops


def test_float16_models_keep_it_behind_the_cast(tmp_path: Path) -> None:
    """The convolution's outputs are rounded to float16 before the activation reads them."""
    done = convert(model(f"r=Relu(c); y=MaxPool(r,{POOL})", dtype=FLOAT16), tmp_path)
    assert done.ops == ["Cast", "Conv", "Cast", "Relu", "MaxPool"]
    (y,) = run(done, {"x": image().astype(np.float16)})
    assert y.dtype == np.float16 and (y >= 0).all()


@pytest.mark.parametrize("activated", [True, False], ids=["relu", "alone"])
@pytest.mark.parametrize("pool", [(2, 2), (1, 3), (4, 1)], ids=str)
def test_a_pool_is_one_with_the_convolution(
    tmp_path: Path, pool: tuple[int, int], activated: bool, alone: Array
) -> None:
    size = "{}/{}".format(*pool)
    tail = f"MaxPool({'r' if activated else 'c'},kernel_shape:{size},strides:{size})"
    done = check(model(f"r=Relu(c); y={tail}" if activated else f"y={tail}"), tmp_path)
    (layer,) = done.proto.graph.node
    assert (layer.domain, layer.op_type) == ("ai.octavo", "Conv")
    assert tuple(attributes(layer)["pool"]) == pool
    largest = reference(alone, pool).astype(np.float32)
    (y,) = run(done, {"x": image()})
    assert np.array_equal(y, np.maximum(largest, 0.0) if activated else largest)


def test_a_pool_of_one_axis(tmp_path: Path) -> None:
    pool = "y=MaxPool(c,kernel_shape:3/,strides:3/,auto_pad:VALID)"
    given = model(pool, conv="Conv(x,w1", window="pads:2/2", shape=("n", 16, "l"))
    assert check(given, tmp_path, image(2, 16, 32)).ops == ["Conv"]


@pytest.mark.parametrize(
    "options",
    [
        "kernel_shape:3/3,strides:2/2",
        "kernel_shape:2/2",
        "kernel_shape:1/1,strides:2/2",
        f"{POOL},pads:1/0/0/0",
        f"{POOL},auto_pad:SAME_UPPER",
        f"{POOL},ceil_mode:1",
        f"{POOL},dilations:2/1",
        "kernel_shape:9/8,strides:9/8",
    ],
)
def test_other_pools_stay_apart(tmp_path: Path, options: str) -> None:
    given = model(f"r=Relu(c); y=MaxPool(r,{options})", window="pads:1/1/1/1")
    assert check(given, tmp_path, image(1, 16, 18, 16)).ops == ["Conv", "MaxPool"]


def test_relu_behind_the_pool_is_taken_too(tmp_path: Path) -> None:
    done, first = (
        convert(model(tail), tmp_path)
        for tail in (f"m=MaxPool(c,{POOL}); y=Relu(m)", f"r=Relu(c); y=MaxPool(r,{POOL})")
    )
    (layer,) = done.proto.graph.node
    assert attributes(layer)["activation"] == "relu" and attributes(layer)["pool"] == [2, 2]
    assert np.array_equal(run(done, {"x": image()})[0], run(first, {"x": image()})[0])


def test_outputs_of_pools_and_of_their_convolutions(tmp_path: Path) -> None:
    """A result of the model stays; where the largest was may be named if nobody asks."""
    kept = convert(model(f"y=MaxPool(c,{POOL})", outputs=("y", "c")), tmp_path)
    assert kept.ops == ["Conv", "MaxPool"]
    assert convert(model(f"y|where=MaxPool(c,{POOL})"), tmp_path).ops == ["Conv"]


def test_filters_over_one_channel_keep_a_pool_behind_them(tmp_path: Path) -> None:
    conv = "Conv(x,depthwise,group:16"
    given = model(f"y=MaxPool(c,{POOL})", conv=conv, shape=[1, 16, 9, 9])
    done = check(given, tmp_path, image(1, 16, 9, 9))
    assert done.ops == ["Conv", "MaxPool"] and len(ours(done)) == 1
