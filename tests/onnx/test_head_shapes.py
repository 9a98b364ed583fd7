"""Shapes that an attention computes of its input, in files for stock ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import octavo.onnx.convert
from tests.graphs import F32, Array, Converted, build, convert, normal, run, text
from tests.native_target.test_attention_fusion import DEPTH, HEADS, QK, SPELLINGS, WIDTH, model

COMPUTING = {"Shape", "Gather", "Unsqueeze", "Concat"}
READ = {"q3", "k3", "v3", "ot"}
SPLIT, JOINED = [0, 0, HEADS, DEPTH], [0, 0, WIDTH]
CONSTANT = [SPLIT, SPLIT, SPLIT, JOINED]
MASKED = SPELLINGS["mask"]


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each projection keeps its own Reshape: `test_merge_qkv` is of those that share one."""
    monkeypatch.setattr("octavo.graph.rewrite.passes.merge_qkv", lambda *_: [])


def shapes(done: Converted) -> list[list[int] | None]:
    """What each Reshape of the attention asks for; None where the graph computes it."""
    known = {i.name: numpy_helper.to_array(i).tolist() for i in done.proto.graph.initializer}
    of = [n for n in done.proto.graph.node if n.op_type == "Reshape" and n.input[0] in READ]
    return [known.get(n.input[1]) for n in of]


def feeds(batch: int, length: int, mask_batch: int | None = None) -> dict[str, Array]:
    mask = np.zeros((batch if mask_batch is None else mask_batch, 1, 1, length), np.float32)
    mask[..., length // 2 + 1 :] = -10.0
    return {"x": normal(batch, length, WIDTH, seed=2), "mask": mask}


def computed(
    proto: onnx.ModelProto, folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> Converted:
    """The same conversion with shapes left as they are."""
    with monkeypatch.context() as patch:
        patch.setattr(octavo.onnx.convert, "head_shapes", lambda *_: {})
        folder.mkdir()
        return convert(proto, folder, **options)


@pytest.mark.parametrize("spelling", [s for s in SPELLINGS if s != "sizes constant"])
def test_shapes_become_constants(spelling: str, tmp_path: Path) -> None:
    done = convert(model(**SPELLINGS[spelling]), tmp_path)
    assert shapes(done) == CONSTANT
    assert not COMPUTING & set(done.ops)
    assert "4 shapes of attentions are constants, no longer computed" in done.report.notes


def test_not_a_bit_of_the_results_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But with a mask for more items than there are: two items' heads were put side by side."""
    proto = model(**MASKED)
    for value in (proto.graph.input[1], proto.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_param = "masks"
    before = computed(proto, tmp_path / "computed", monkeypatch)
    assert set(before.ops) >= COMPUTING
    after = convert(proto, tmp_path)
    for batch, length in ((1, 1), (1, 8), (3, 5)):
        x = feeds(batch, length)
        (wanted,), (found,) = run(before.path, x), run(after.path, x)
        assert found.shape == (batch, length, WIDTH)
        np.testing.assert_array_equal(found, wanted)
    x = feeds(1, 8, mask_batch=2)
    with pytest.raises(Exception, match="dimension mismatch"):
        run(before.path, x)
    one = run(before.path, feeds(1, 8))[0]
    np.testing.assert_array_equal(run(after.path, x)[0], np.concatenate([one, one]))


def of_a_reshape_for_which_0_means_no_elements(proto: onnx.ModelProto) -> None:
    for node in proto.graph.node:
        if node.op_type == "Reshape":
            node.attribute.append(helper.make_attribute("allowzero", 1))


def of_something_else(proto: onnx.ModelProto) -> None:
    """Nothing says that a length without a name is that of x."""
    proto.graph.input.append(helper.make_tensor_value_info("other", F32, None))
    (shape,) = (n for n in proto.graph.node if n.op_type == "Shape")
    shape.input[0] = "other"


def in_another_order(proto: onnx.ModelProto) -> None:
    """Batch twice, where length happens to be the same."""
    for node in proto.graph.node:
        if node.op_type == "Concat":
            node.input[:2] = ["dim_zero", "dim_zero"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (of_a_reshape_for_which_0_means_no_elements, CONSTANT),
        (of_something_else, [None] * 4),
        (in_another_order, [None] * 4),
    ],
)
def test_sizes(change: Any, expected: list[Any], tmp_path: Path) -> None:
    proto = model(**MASKED)
    change(proto)
    done = convert(proto, tmp_path)
    assert shapes(done) == expected
    given = feeds(6, 6)
    given |= {"other": given["x"]} if change is of_something_else else {}
    assert run(done.path, given)[0].shape == (6, 6, WIDTH)


@dataclass(frozen=True)
class Case:
    """An attention of `queries` and `x`, whose shapes are `split`, `splits` (of keys) and `joined`.

    Their elements are numbers, or names of a value and an axis: `x0`, `queries1`.
    """

    queries: Sequence[int]
    x: Sequence[int]
    split: str
    splits: str
    joined: str
    depth: int = 8
    mask: Sequence[int] = ()
    bias: int = 0
    out: int = 0
    constant: Sequence[bool] = (True, True, True, True)


CASES = {
    "a mask with more heads": Case(
        (2, 5, 32), (2, 5, 32), "x0 x1 1 8", "x0 x1 1 8", "x0 x1 -1", 8, (2, 6, 5, 5), 0, 48,
        (True, True, True, False),
    ),
    "keys of more items": Case(
        (1, 2, 32), (3, 5, 32), "queries0 queries1 4 8", "x0 x1 4 8", "queries0 queries1 -1",
        constant=(True, True, True, False),
    ),
    "a mask with more rows": Case(
        (2, 1, 32), (2, 1, 32), "x0 x1 4 8", "x0 x1 4 8", "x0 x1 -1", 8, (2, 1, 4, 1),
        constant=(True, True, True, False),
    ),
    "a width that is stated": Case(
        (2, 3, 32), (2, 3, 32), "x0 x1 4 8", "x0 x1 -1 8", "x0 x1 32",
    ),
    "queries of two axes": Case(
        (3, 32), (3, 5, 32), "queries0 -1 4 8", "x0 -1 4 8", "queries0 -1 32",
        constant=(False,) * 4,
    ),
    "four axes": Case(
        (2, 3, 4, 32), (2, 3, 4, 32), "x0 -1 4 8", "x0 -1 4 8", "x0 -1 32",
        constant=(False,) * 4,
    ),
    "heads that a bias makes": Case(
        (2, 5, 32), (2, 5, 32), "x0 x1 -1 1", "x0 x1 -1 1", "x0 x1 -1", 1, bias=8,
        constant=(False,) * 4,
    ),
}  # fmt: skip


def drawn(case: Case) -> onnx.ModelProto:
    width = 1 if case.bias else abs(int(case.split.split()[2])) * case.depth
    arrays: dict[str, Any] = {w: normal(32, width, seed=i) / 6 for i, w in enumerate(("wq", "wk"))}
    arrays["wv"] = arrays["wk"] * np.float32(0.7)
    arrays |= {"bias": np.linspace(-1, 1, case.bias, dtype=np.float32)} if case.bias else {}
    body = ""
    for letter, source in zip("qkv", ("queries", "x", "x"), strict=True):
        out = f"{letter}1" if case.bias else f"{letter}3"
        body += f" [{letter}] {out} = MatMul ({source}, w{letter})"
        body += f" {letter}3 = Add ({out}, bias)" if case.bias else ""
    for name in ("split", "splits", "joined"):
        parts = []
        for i, word in enumerate(getattr(case, name).split()):
            part = f"{name}{i}"
            if word.lstrip("-").isdigit():
                arrays[part] = np.array([int(word)])
            else:
                arrays[f"{part}i"] = np.array([int(word[-1])])
                body += f" {part}s = Shape ({word[:-1]}) {part} = Gather ({part}s, {part}i)"
            parts.append(part)
        body += f" {name} = Concat <axis = 0> ({', '.join(parts)})"
    for letter, shape, perm in (
        ("q", "split", [0, 2, 1, 3]),
        ("k", "splits", [0, 2, 3, 1]),
        ("v", "splits", [0, 2, 1, 3]),
    ):
        body += f" {letter}4 = Reshape ({letter}3, {shape})"
        body += f" {letter}t = Transpose <perm = {perm}> ({letter}4)"
    body += " qk = MatMul (qt, kt)" + (" logits = Add (qk, mask)" if case.mask else "")
    body += f""" p = Softmax <axis = -1> ({"logits" if case.mask else "qk"}) o4 = MatMul (p, vt)
        ot = Transpose <perm = [0, 2, 1, 3]> (o4) {"o3" if case.out else "y"} = Reshape (ot, joined)
        """
    if case.out:
        arrays["wo"] = normal(case.out, 16, seed=3)
        body += "[out] y = MatMul (o3, wo)"
    nodes = text(body, "", "").graph.node
    if case.queries == case.x:  # one value
        for node in nodes:
            node.input[:] = ["queries" if name == "x" else name for name in node.input]
    given = {"queries": case.queries, "x": case.x, "mask": case.mask}
    read = {name for node in nodes for name in node.input}
    inputs = [(n, F32, [f"{n}{i}" for i in range(len(s))]) for n, s in given.items() if n in read]
    return build(nodes, inputs, ["y"], arrays)


@pytest.mark.parametrize("name", CASES)
def test_what_ran_runs_as_before(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Axes that broadcasting widens, and values that are no batch of rows."""
    case = CASES[name]
    proto = drawn(case)
    given = {"queries": case.queries, "x": case.x, "mask": case.mask}
    x = {i.name: normal(*given[i.name], seed=4) for i in proto.graph.input}
    few = {"op_types_to_quantize": ["MatMul"]} if name == "heads that a bias makes" else {}
    before = computed(proto, tmp_path / "computed", monkeypatch, **few)
    after = convert(proto, tmp_path, **few)
    np.testing.assert_array_equal(run(after.path, x)[0], run(before.path, x)[0])
    assert [shape is not None for shape in shapes(after)] == list(case.constant)


@pytest.mark.parametrize("target", ["portable", "native"])
def test_a_classifier_whose_weight_is_a_node(target: str, tmp_path: Path) -> None:
    """What leads to its Softmax has a producer without inputs."""
    weight = numpy_helper.from_array(np.eye(32, 8, dtype=np.float32), "w")
    body = "h = MatMul (x, w) p = Softmax (h) y = MatMul (p, b)"
    proto = text(body, "float[n, 32] x", weights={"b": np.eye(8, dtype=np.float32)})
    proto.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=weight))
    assert len(convert(proto, tmp_path, target=target).report.quantized) == 2


@pytest.mark.parametrize(
    "options",
    [{"recipe": "int8-per-tensor"}, {"quant_format": "qdq"}, {"recipe": "float16"}],
    ids=["per tensor", "qdq", "float16"],
)
def test_what_looks_as_others_make_it_stays_so(options: dict[str, Any], tmp_path: Path) -> None:
    done = convert(model([QK, ("Mul", ["qk", "eighth"], "logits")]), tmp_path, **options)
    assert shapes(done) == [None] * 4
