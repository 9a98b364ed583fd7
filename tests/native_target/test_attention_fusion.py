"""Attention as exporters write it, and what must not be taken for it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from octavo.onnx import convert_target
from tests import graphs
from tests.graphs import FLOAT, build, normal
from tests.native_target.forms import convert, nodes_of, ours, run
from tests.native_target.nodes import REFUSALS

HEADS, DEPTH = 4, 8
WIDTH = HEADS * DEPTH
Step = tuple[str, list[str], str] | tuple[str, list[str], str, dict[str, Any]]
COMPUTED = (
    "split=Concat(dim_zero,dim_one,rest,depth,axis:0); joined=Concat(dim_zero,dim_one,rest,axis:0)"
)
SIZES = {
    "gathered": "shape=Shape(x); size_zero=Gather(shape,zero); dim_zero=Unsqueeze(size_zero,axis); "
    f"size_one=Gather(shape,one); dim_one=Unsqueeze(size_one,axis); {COMPUTED}",
    "sliced": f"dim_zero=Shape(x,start:0,end:1); dim_one=Shape(x,start:1,end:2); {COMPUTED}",
    "constant": "",
    "blocks": "",  # of five steps, each attending to itself
}
"""How the Reshapes into heads and back know their sizes, and what computes them."""
SHAPES = {"constant": ("fixed", "flat"), "blocks": ("blocks", "whole")}
NAMES = {"q3": "q3", "k3": "k3", "v3": "v3", "y": "out"}
"""Of the layers, by their outputs."""


def model(
    scores: list[Step],
    *,
    sizes: str = "gathered",
    key_perms: tuple[tuple[int, ...], ...] = ((0, 2, 3, 1),),
    extra_outputs: tuple[str, ...] = (),
    softmax_axis: int = -1,
) -> onnx.ModelProto:
    """Projections of `x` and attention over them; `scores` leads from `qk` to `logits`."""
    random = np.random.default_rng(0)
    constants: dict[str, Any] = {
        f"w{i}": (random.standard_normal((WIDTH, WIDTH)) / 6).astype(np.float32) for i in range(4)
    }
    numbers = {"eighth": 0.35, "root": 1 / 0.35, "half": np.sqrt(0.35)}
    constants |= {name: np.float32(number) for name, number in numbers.items()}
    integers: dict[str, Any] = {"zero": 0, "one": 1, "axis": [0], "heads": [HEADS], "rest": [-1]}
    integers |= {"depth": [DEPTH], "width": [WIDTH], "fixed": [0, 0, HEADS, DEPTH]}
    integers |= {"flat": [0, 0, WIDTH], "blocks": [-1, 5, HEADS, DEPTH], "whole": [-1, 20, WIDTH]}
    constants |= {name: np.array(number) for name, number in integers.items()}
    split, joined = SHAPES.get(sizes, ("split", "joined"))
    turned = [*(f"kt{i}" for i in range(len(key_perms) - 1)), "kt"]
    parts = [
        *("q3=MatMul(x,w0)", "k3=MatMul(x,w1)", "v3=MatMul(x,w2)", SIZES[sizes]),
        *(f"{n}4=Reshape({n}3,{split})" for n in "qkv"),
        *(f"{n}t=Transpose({n}4,perm:0/2/1/3)" for n in "qv"),
        *(
            f"{out}=Transpose({inner},perm:{'/'.join(map(str, perm))})"
            for inner, out, perm in zip(["k4", *turned], turned, key_perms, strict=False)
        ),
    ]
    nodes = nodes_of("; ".join(filter(None, parts)))
    for op, inputs, out, *attributes in scores:
        nodes.append(helper.make_node(op, inputs, [out], **(attributes[0] if attributes else {})))
    nodes += nodes_of(
        f"p=Softmax(logits,axis:{softmax_axis}); o4=MatMul(p,vt); "
        f"ot=Transpose(o4,perm:0/2/1/3); o3=Reshape(ot,{joined}); y=MatMul(o3,w3)"
    )
    for each in nodes:
        each.name = NAMES.get(each.output[0], "")
    x = (FLOAT, ["batch", "length", WIDTH])
    outputs = {"y": x} | dict.fromkeys(extra_outputs, (FLOAT, None))
    return build(nodes, {"x": x, "mask": (FLOAT, ["batch", 1, 1, "length"])}, outputs, constants)


QK: Step = ("MatMul", ["qt", "kt"], "qk")
SCALED: list[Step] = [QK, ("Mul", ["qk", "eighth"], "logits")]
SPELLINGS: dict[str, dict[str, Any]] = {
    "factor": {"scores": SCALED},
    "divisor": {"scores": [QK, ("Div", ["qk", "root"], "logits")]},
    "factor first": {"scores": [QK, ("Mul", ["eighth", "qk"], "logits")]},
    "mask": {"scores": [QK, ("Mul", ["qk", "eighth"], "s"), ("Add", ["s", "mask"], "logits")]},
    "mask first": {"scores": [QK, ("Div", ["qk", "root"], "s"), ("Add", ["mask", "s"], "logits")]},
    "scales on both": {
        "scores": [
            ("Mul", ["qt", "half"], "qs"),
            ("Mul", ["kt", "half"], "ks"),
            ("MatMul", ["qs", "ks"], "logits"),
        ]
    },
    "keys turned twice": {"scores": SCALED, "key_perms": ((0, 2, 1, 3), (0, 1, 3, 2))},
    "sizes sliced": {"scores": SCALED, "sizes": "sliced"},
    "sizes constant": {"scores": SCALED, "sizes": "constant"},
    "axis 3": {"scores": SCALED, "softmax_axis": 3},
}


def feeds() -> dict[str, np.ndarray]:
    mask = np.zeros((3, 1, 1, 20), np.float32)
    mask[1, ..., 15:] = np.finfo(np.float32).min
    return {"x": normal(3, 20, WIDTH, seed=1), "mask": mask}


def used(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    """The feeds without a mask that the model does not read."""
    read = {name for node in proto.graph.node for name in node.input}
    if "mask" not in read:
        del proto.graph.input[1]
    return {name: array for name, array in feeds().items() if name in read}


def assert_close(y: np.ndarray, exact: np.ndarray) -> None:
    """Of five layers in 8 bits."""
    assert y.shape == exact.shape
    assert np.linalg.norm(y - exact) < 0.03 * np.linalg.norm(exact)


def ops(done: graphs.Converted) -> list[str]:
    return [n.op_type for n in ours(done)]


def check(proto: onnx.ModelProto, folder: Path) -> graphs.Converted:
    x = used(proto)
    done = convert(proto, folder)
    assert_close(run(done, x, ["y"])[0], graphs.run(proto, x, ["y"])[0])
    return done


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_becomes_one_node(spelling: str, tmp_path: Path) -> None:
    done = check(model(**SPELLINGS[spelling]), tmp_path)
    assert ops(done) == ["GroupedLinear", "Attention", "Linear"]
    left = {"Softmax", "Transpose", "Reshape", "Concat", "Gather", "Shape"}
    assert not left & set(done.ops)


SAME: list[Step] = [QK, ("Identity", ["qk"], "logits")]


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"scores": SAME, "extra_outputs": ("o4",)}, "Transpose"),
        ({"scores": SCALED, "sizes": "blocks"}, "Reshape"),
    ],
    ids=["its result read before the Transpose", "blocks of the length"],
)
def test_reshapes_that_cannot_be_taken_in_stay(
    change: dict[str, Any], kept: str, tmp_path: Path
) -> None:
    done = check(model(**change), tmp_path)
    assert "Attention" in ops(done)
    assert kept in done.ops


def test_keys_may_be_the_queries(tmp_path: Path) -> None:
    turned: Step = ("Transpose", ["qt"], "qt2", {"perm": [0, 1, 3, 2]})
    done = check(model([turned, ("MatMul", ["qt", "qt2"], "logits")]), tmp_path)
    (attention,) = [n for n in ours(done) if n.op_type == "Attention"]
    assert attention.input[0] == attention.input[1]


def masked(sizes: str, dims: Any, *, read: bool) -> onnx.ModelProto:
    """With a mask of the shape `dims`; not `read` by a layer, which takes no other width."""
    proto = model(SPELLINGS["mask"]["scores"], sizes=sizes)
    mask_info = helper.make_tensor_value_info("mask", TensorProto.FLOAT, dims)
    proto.graph.input[1].CopyFrom(mask_info)
    if not read:
        del proto.graph.node[-1]
        proto.graph.output[0].name = "o3"
        proto.graph.output[0].type.tensor_type.ClearField("shape")
    return proto


@pytest.mark.parametrize("target", ["native", "portable"])
@given(
    data=st.data(),
    sizes=st.sampled_from(["gathered", "sliced", "constant"]),
    heads=st.sampled_from([1, HEADS]),
    batch=st.sampled_from([1, 3]),
    length=st.sampled_from([1, 5]),
    read=st.booleans(),
)
@settings(max_examples=12, deadline=None)
def test_masks_broadcast_as_onnx_has_it(
    target: str, data: st.DataObject, sizes: str, heads: int, batch: int, length: int, read: bool
) -> None:
    """Of any rank, and larger than the scores: the numbers and the shapes are the float model's.

    What it refuses, the native operator refuses too.
    """
    pairs = (batch, 4), (heads, 2), (length, 6), (length, 1)
    full = [data.draw(st.sampled_from([n, 1] if n > 1 else [1, more])) for n, more in pairs]
    shape = full[4 - data.draw(st.integers(0, 4)) :]
    dims = [data.draw(st.sampled_from([size, f"m{i}"])) for i, size in enumerate(shape)]
    proto = masked(sizes, dims, read=read)
    for constant in proto.graph.initializer:
        if heads == 1 and constant.name in ("depth", "fixed"):
            whole = {"depth": [WIDTH], "fixed": [0, 0, 1, WIDTH]}[constant.name]
            constant.CopyFrom(numpy_helper.from_array(np.array(whole), constant.name))
    x = {"x": normal(batch, length, WIDTH, seed=5), "mask": np.asarray(3 * normal(*shape, seed=6))}
    with tempfile.TemporaryDirectory() as folder:
        done = graphs.convert(proto, Path(folder), target=target)
        assert ("Attention" in ops(done)) == (target == "native")
        expected = outcome(lambda: graphs.run(proto, x)[0])
        found = outcome(lambda: run(done, x)[0])
    if expected is None:
        assert found is None or target == "portable"
    else:
        assert found is not None
        assert_close(found, expected)


def outcome(make: Callable[[], np.ndarray]) -> np.ndarray | None:
    """None where ONNX Runtime refuses the run."""
    try:
        return make()
    except REFUSALS:
        return None


@pytest.mark.parametrize("sizes", ["gathered", "constant"])
@pytest.mark.parametrize(
    ("length", "shape"), [(5, (4, 1, 1, 5)), (1, (1, 1, 6, 1))], ids=["batch", "queries"]
)
def test_larger_masks_in_a_file_made_portable_again(
    tmp_path: Path, sizes: str, length: int, shape: tuple[int, ...]
) -> None:
    proto = masked(sizes, "bhst", read=False)
    portable = tmp_path / "portable.onnx"
    convert_target(convert(proto, tmp_path).path, portable, to="portable", verify=False)
    x = {"x": normal(1, length, WIDTH, seed=5), "mask": normal(*shape, seed=6)}
    assert_close(run(portable, x)[0], graphs.run(proto, x)[0])


def copy(node: onnx.NodeProto, renamed: dict[str, str]) -> onnx.NodeProto:
    """The node once more, over values of its own but for those that `renamed` names."""
    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.input[:] = [renamed.get(i, f"{i}_again") for i in node.input]
    made.output[:] = [f"{o}_again" for o in node.output]
    return made
