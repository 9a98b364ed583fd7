"""Attention as exporters write it, and what must not be taken for it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

from octavo.onnx import convert_target, session
from tests.graphs import convert as convert_to
from tests.native_target.forms import convert, ours, run

HEADS, DEPTH = 4, 8
WIDTH = HEADS * DEPTH
Step = tuple[str, list[str], str] | tuple[str, list[str], str, dict[str, Any]]


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
    constants = {
        f"w{i}": (random.standard_normal((WIDTH, WIDTH)) / 6).astype(np.float32) for i in range(4)
    }
    constants |= {
        "eighth": np.float32(0.35),
        "root": np.float32(1 / 0.35),
        "half": np.float32(np.sqrt(0.35)),
        "zero": np.array(0),
        "one": np.array(1),
        "axis": np.array([0]),
        "heads": np.array([HEADS]),
        "depth": np.array([DEPTH]),
        "width": np.array([WIDTH]),
        "rest": np.array([-1]),
        "fixed": np.array([0, 0, HEADS, DEPTH]),
        "flat": np.array([0, 0, WIDTH]),
        "blocks": np.array([-1, 5, HEADS, DEPTH]),
        "whole": np.array([-1, 20, WIDTH]),
    }
    nodes = [
        helper.make_node("MatMul", ["x", f"w{i}"], [name], name=name)
        for i, name in enumerate(("q3", "k3", "v3"))
    ]
    if sizes == "gathered":
        nodes.append(helper.make_node("Shape", ["x"], ["shape"]))
        for index in ("zero", "one"):
            nodes.append(helper.make_node("Gather", ["shape", index], [f"size_{index}"]))
            nodes.append(helper.make_node("Unsqueeze", [f"size_{index}", "axis"], [f"dim_{index}"]))
        dims = ["dim_zero", "dim_one"]
    elif sizes == "sliced":
        nodes.append(helper.make_node("Shape", ["x"], ["dim_zero"], start=0, end=1))
        nodes.append(helper.make_node("Shape", ["x"], ["dim_one"], start=1, end=2))
        dims = ["dim_zero", "dim_one"]
    if sizes == "constant":
        split, joined = "fixed", "flat"
    elif sizes == "blocks":  # of five steps, each attending to itself
        split, joined = "blocks", "whole"
    else:
        split, joined = "split", "joined"
        nodes.append(helper.make_node("Concat", [*dims, "rest", "depth"], ["split"], axis=0))
        nodes.append(helper.make_node("Concat", [*dims, "rest"], ["joined"], axis=0))
    for name in "qkv":
        nodes.append(helper.make_node("Reshape", [f"{name}3", split], [f"{name}4"]))
    nodes.append(helper.make_node("Transpose", ["q4"], ["qt"], perm=[0, 2, 1, 3]))
    nodes.append(helper.make_node("Transpose", ["v4"], ["vt"], perm=[0, 2, 1, 3]))
    last = "k4"
    for i, perm in enumerate(key_perms):
        made = "kt" if i == len(key_perms) - 1 else f"kt{i}"
        nodes.append(helper.make_node("Transpose", [last], [made], perm=list(perm)))
        last = made
    for op, inputs, out, *attributes in scores:
        nodes.append(helper.make_node(op, inputs, [out], **(attributes[0] if attributes else {})))
    nodes += [
        helper.make_node("Softmax", ["logits"], ["p"], axis=softmax_axis),
        helper.make_node("MatMul", ["p", "vt"], ["o4"]),
        helper.make_node("Transpose", ["o4"], ["ot"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["ot", joined], ["o3"]),
        helper.make_node("MatMul", ["o3", "w3"], ["y"], name="out"),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "attention",
        [
            info("x", TensorProto.FLOAT, ["batch", "length", WIDTH]),
            info("mask", TensorProto.FLOAT, ["batch", 1, 1, "length"]),
        ],
        [info("y", TensorProto.FLOAT, ["batch", "length", WIDTH])]
        + [info(name, TensorProto.FLOAT, None) for name in extra_outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


QK: Step = ("MatMul", ["qt", "kt"], "qk")
SPELLINGS: dict[str, dict[str, Any]] = {
    "factor": {"scores": [QK, ("Mul", ["qk", "eighth"], "logits")]},
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
    "keys turned twice": {
        "scores": [QK, ("Mul", ["qk", "eighth"], "logits")],
        "key_perms": ((0, 2, 1, 3), (0, 1, 3, 2)),
    },
    "sizes sliced": {"scores": [QK, ("Mul", ["qk", "eighth"], "logits")], "sizes": "sliced"},
    "sizes constant": {"scores": [QK, ("Mul", ["qk", "eighth"], "logits")], "sizes": "constant"},
    "axis 3": {"scores": [QK, ("Mul", ["qk", "eighth"], "logits")], "softmax_axis": 3},
}


def feeds() -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    mask = np.zeros((3, 1, 1, 20), np.float32)
    mask[1, ..., 15:] = np.finfo(np.float32).min
    return {"x": random.standard_normal((3, 20, WIDTH)).astype(np.float32), "mask": mask}


def used(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    """The feeds without a mask that the model does not read."""
    read = {name for node in proto.graph.node for name in node.input}
    if "mask" not in read:
        del proto.graph.input[1]
    return {name: array for name, array in feeds().items() if name in read}


def float_outputs(proto: onnx.ModelProto, x: dict[str, np.ndarray], name: str = "y") -> np.ndarray:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    runner = ort.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    y: np.ndarray = runner.run([name], x)[0]
    return y


def assert_close(y: np.ndarray, exact: np.ndarray) -> None:
    """Of five layers in 8 bits."""
    assert np.linalg.norm(y - exact) < 0.03 * np.linalg.norm(exact)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_becomes_one_node(spelling: str, tmp_path: Path) -> None:
    proto = model(**SPELLINGS[spelling])
    x = used(proto)
    done = convert(proto, tmp_path)
    assert [n.op_type for n in ours(done)] == ["GroupedLinear", "Attention", "Linear"]
    left = {"Softmax", "Transpose", "Reshape", "Concat", "Gather", "Shape"}
    assert not left & set(done.ops)
    assert_close(run(done, x)[0], float_outputs(proto, x))


def test_attention_itself_rounds_nothing(tmp_path: Path) -> None:
    """The same layers with and without the rule: what differs is the rounding of float32."""
    plain = SPELLINGS["mask"]
    proto = model(**plain)
    x = used(proto)
    fused = convert(proto, tmp_path)
    # An output in the middle keeps the nodes apart.
    apart = convert(model(**plain, extra_outputs=("p",)), tmp_path)
    assert "Attention" in [n.op_type for n in ours(fused)]
    assert "Attention" not in [n.op_type for n in ours(apart)]
    a, b = run(fused, x)[0], run(apart, x)[0]
    # The layer after it rounds to 8 bits what may differ in the last bit of float32.
    assert np.linalg.norm(a - b) < 2e-3 * np.linalg.norm(b)


@pytest.mark.parametrize(
    "change",
    [
        {"scores": [QK, ("Mul", ["qk", "eighth"], "logits")], "softmax_axis": 2},
        {"scores": [QK, ("Identity", ["qk"], "logits")], "extra_outputs": ("qk",)},
        {"scores": [QK, ("Identity", ["qk"], "logits")], "extra_outputs": ("p",)},
        {"scores": [QK, ("Relu", ["qk"], "logits")]},
    ],
    ids=["other axis", "scores read", "weights read", "something between"],
)
def test_what_is_no_attention_stays_as_it_is(change: dict[str, Any], tmp_path: Path) -> None:
    proto = model(**change)
    x = used(proto)
    done = convert(proto, tmp_path)
    assert "Attention" not in [n.op_type for n in ours(done)]
    assert_close(run(done, x)[0], float_outputs(proto, x))


@pytest.mark.parametrize(
    "change,kept",
    [
        ({"scores": [QK, ("Identity", ["qk"], "logits")], "extra_outputs": ("o4",)}, "Transpose"),
        ({"scores": [QK, ("Mul", ["qk", "eighth"], "logits")], "sizes": "blocks"}, "Reshape"),
    ],
    ids=["its result read before the Transpose", "blocks of the length"],
)
def test_reshapes_that_cannot_be_taken_in_stay(
    change: dict[str, Any], kept: str, tmp_path: Path
) -> None:
    proto = model(**change)
    x = used(proto)
    done = convert(proto, tmp_path)
    assert "Attention" in [n.op_type for n in ours(done)]
    assert kept in done.ops
    assert_close(run(done, x)[0], float_outputs(proto, x))


def test_keys_may_be_the_queries(tmp_path: Path) -> None:
    turned: Step = ("Transpose", ["qt"], "qt2", {"perm": [0, 1, 3, 2]})
    proto = model([turned, ("MatMul", ["qt", "qt2"], "logits")])
    x = used(proto)
    done = convert(proto, tmp_path)
    (attention,) = [n for n in ours(done) if n.op_type == "Attention"]
    assert attention.input[0] == attention.input[1]
    assert_close(run(done, x)[0], float_outputs(proto, x))


@pytest.mark.parametrize("target", ["native", "portable"])
@given(
    data=st.data(),
    sizes=st.sampled_from(["gathered", "sliced", "constant"]),
    heads=st.sampled_from([1, HEADS]),
    batch=st.sampled_from([1, 3]),
    length=st.sampled_from([1, 5]),
    read=st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_masks_broadcast_as_onnx_has_it(
    target: str,
    data: st.DataObject,
    sizes: str,
    heads: int,
    batch: int,
    length: int,
    read: bool,
) -> None:
    """Of any rank, and larger than the scores: the numbers and the shapes are the float model's.

    What it refuses, the native operator refuses too.
    """
    pairs = (batch, 4), (heads, 2), (length, 6), (length, 1)
    full = [data.draw(st.sampled_from([n, 1] if n > 1 else [1, more])) for n, more in pairs]
    shape = full[4 - data.draw(st.integers(0, 4)) :]
    proto = model(sizes=sizes, scores=SPELLINGS["mask"]["scores"])
    for constant in proto.graph.initializer:
        if heads == 1 and constant.name in ("depth", "fixed"):
            whole = {"depth": [WIDTH], "fixed": [0, 0, 1, WIDTH]}[constant.name]
            constant.CopyFrom(numpy_helper.from_array(np.array(whole), constant.name))
    dims = [data.draw(st.sampled_from([size, f"m{i}"])) for i, size in enumerate(shape)]
    mask_info = helper.make_tensor_value_info("mask", TensorProto.FLOAT, dims)
    proto.graph.input[1].CopyFrom(mask_info)
    if not read:  # by a layer, which takes no other width
        del proto.graph.node[-1]
        proto.graph.output[0].name = "o3"
        proto.graph.output[0].type.tensor_type.ClearField("shape")
    random = np.random.default_rng(5)
    x = {
        "x": random.standard_normal((batch, length, WIDTH)).astype(np.float32),
        "mask": np.asarray(random.standard_normal(shape) * 3, np.float32),
    }
    name = proto.graph.output[0].name
    with tempfile.TemporaryDirectory() as folder:
        done = convert_to(proto, Path(folder), target=target)
        assert ("Attention" in [n.op_type for n in ours(done)]) == (target == "native")
        expected = outcome(lambda: float_outputs(proto, x, name))
        found = outcome(lambda: run(done, x)[0])
    if expected is None:
        assert found is None or target == "portable"
    else:
        assert found is not None and found.shape == expected.shape
        assert_close(found, expected)


@pytest.mark.parametrize("sizes", ["gathered", "constant"])
@pytest.mark.parametrize("shape", [(4, 1, 1, 5), (1, 1, 6, 5)], ids=["batch", "queries"])
def test_larger_masks_in_a_file_made_portable_again(
    tmp_path: Path, sizes: str, shape: tuple[int, ...]
) -> None:
    proto = model(sizes=sizes, scores=SPELLINGS["mask"]["scores"])
    del proto.graph.node[-1]
    proto.graph.output[0].name = "o3"
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    proto.graph.input[1].CopyFrom(helper.make_tensor_value_info("mask", TensorProto.FLOAT, "bhst"))
    done = convert(proto, tmp_path)
    convert_target(done.path, tmp_path / "portable.onnx", to="portable", verify=False)
    random = np.random.default_rng(5)
    x = {
        "x": random.standard_normal((1, 5 if shape[2] == 1 else 1, WIDTH)).astype(np.float32),
        "mask": np.asarray(random.standard_normal(shape), np.float32),
    }
    if shape[2] > 1:
        x["mask"] = x["mask"][..., :1]  # one key, as there is one query
    expected = float_outputs(proto, x, "o3")
    (found,) = session(tmp_path / "portable.onnx").run(None, x)
    assert found.shape == expected.shape
    assert_close(found, expected)


def outcome(make: Callable[[], np.ndarray]) -> np.ndarray | None:
    """None where ONNX Runtime refuses the run."""
    try:
        return make()
    except (Fail, InvalidArgument, RuntimeException):
        return None


def test_an_attention_may_read_what_another_gives(tmp_path: Path) -> None:
    """Without a layer between them: the sizes are stated."""
    proto = model(**SPELLINGS["sizes constant"])
    nodes = proto.graph.node
    again = [copy(n, "again") for n in nodes if n.op_type in ("Reshape", "Transpose", "Softmax")]
    again += [copy(n, "again") for n in nodes if n.op_type in ("MatMul", "Mul") and not n.name]
    for each in again:
        for i, name in enumerate(each.input):
            if name in ("q3_again", "k3_again", "v3_again"):
                each.input[i] = "o3"
    nodes[-1].input[0] = "o3_again"
    last = nodes.pop()
    nodes.extend([*again, last])
    shape = ["batch", "length", WIDTH]
    proto.graph.value_info.append(helper.make_tensor_value_info("o3", TensorProto.FLOAT, shape))
    x = used(proto)
    expected = float_outputs(proto, x)
    done = convert(proto, tmp_path)
    assert [n.op_type for n in ours(done)] == ["GroupedLinear", "Attention", "Attention", "Linear"]
    assert_close(run(done, x)[0], expected)


def copy(node: onnx.NodeProto, suffix: str) -> onnx.NodeProto:
    """The node once more, over values of its own; constants are shared."""
    made = onnx.NodeProto()
    made.CopyFrom(node)
    shared = {"fixed", "flat", "eighth"}
    made.input[:] = [i if i in shared else f"{i}_{suffix}" for i in node.input]
    made.output[:] = [f"{o}_{suffix}" for o in node.output]
    return made
