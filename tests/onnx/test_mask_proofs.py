"""Masks that only look as if they were read in their order, or expanded to what they meet anyway.

Each was changed once. A conversion that leaves them alone and one that may not touch masks give the
same, also where the model says less than the truth, or something else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.graphs import convert
from tests.onnx.test_masks import gathering, outputs

WIDTH = 32
BOOL, FLOAT, I64 = TensorProto.BOOL, TensorProto.FLOAT, TensorProto.INT64
Array = npt.NDArray[Any]


def node(op: str, inputs: str, out: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [out], **attributes)


def size(of: str, axis: int, out: str) -> list[onnx.NodeProto]:
    """`out`, a number; in a vector of one it is `out`_vector."""
    return [
        node("Shape", of, f"{out}_shape"),
        node("Gather", f"{out}_shape i{axis}", out),
        node("Gather", f"{out}_shape v{axis}", f"{out}_vector"),
    ]


NUMBERS: Mapping[str, Array] = {
    "i0": np.array(0),
    "i1": np.array(1),
    "v0": np.array([0]),
    "v1": np.array([1]),
    "minus": np.array([-1]),
    "last": np.array([2**31]),
    "rows": np.array([1, 2]),
    "columns": np.array([0, 1]),
    "f0": np.array(0, np.float32),
    "f1": np.array(1, np.float32),
    "half": np.array(-0.5, np.float32),
    "more": np.array(1.5, np.float32),
    "infinite": np.array(np.inf, np.float32),
    "three": np.array([1, -np.inf, np.nan], np.float32),
}


@dataclass(frozen=True)
class Case:
    """Nodes that make `seen` of the mask `m` and the length of `x` [batch, length, 32]."""

    nodes: Sequence[onnx.NodeProto]
    mask: Sequence[int | str]
    given: Sequence[int] = ()
    length: int = 5
    axes: Sequence[int | str] = ("batch", "length")
    more: Sequence[onnx.ValueInfoProto] = ()
    fed: Mapping[str, Array] = field(default_factory=dict)
    stated: Sequence[onnx.ValueInfoProto] = ()

    def model(self) -> onnx.ModelProto:
        """A product in int8, scores of two activations, and the mask added to them."""
        random = np.random.default_rng(0)
        weight = (random.standard_normal((WIDTH, WIDTH)) / 6).astype(np.float32)
        constants = {**NUMBERS, "w": weight, "low": np.float32(-1e4), "zero": np.float32(0)}
        info = helper.make_tensor_value_info
        inputs = [info("x", FLOAT, [*self.axes, WIDTH]), info("m", BOOL, list(self.mask))]
        graph = helper.make_graph(
            [
                node("MatMul", "x w", "q", name="layer"),
                node("Transpose", "x", "turned", perm=[0, 2, 1]),
                node("MatMul", "q turned", "scores"),
                *self.nodes,
                node("Where", "seen zero low", "mask"),
                node("Add", "scores mask", "y"),
            ],
            "masked",
            [*inputs, *self.more],
            [info("y", FLOAT, None)],
            [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
            value_info=list(self.stated),
        )
        domains = [helper.make_opsetid(domain, v) for domain, v in (("", 17), ("com.microsoft", 1))]
        return helper.make_model(graph, opset_imports=domains, ir_version=8)

    def feed(self) -> dict[str, Array]:
        random = np.random.default_rng(1)
        x = random.standard_normal((2, self.length, WIDTH)).astype(np.float32)
        return {"x": x, "m": random.random(self.given) > 0.5, **self.fed}


def gathered(along: int) -> list[onnx.NodeProto]:
    """Element b * (a size of the mask) + k for each item and token."""
    return [
        *size("x", 0, "B"),
        *size("x", 1, "S"),
        *size("m", along, "stride"),
        node("Range", "i0 B i1", "b"),
        node("Range", "i0 S i1", "k"),
        node("Unsqueeze", "b rows", "b3"),
        node("Unsqueeze", "k columns", "k3"),
        node("Mul", "b3 stride", "steps"),
        node("Add", "steps k3", "index"),
        node("Reshape", "m minus", "flat"),
        node("Gather", "flat index", "seen"),
    ]


def counted(through: str, *casts: onnx.NodeProto) -> list[onnx.NodeProto]:
    """The first elements of a mask, as many as a number says."""
    return [
        *size("m", 0, "S"),
        *casts,
        node("Range", f"i0 {through} i1", "k"),
        node("Reshape", "m minus", "flat"),
        node("Gather", "flat k", "seen"),
    ]


def at_least_zero(*steps: onnx.NodeProto) -> list[onnx.NodeProto]:
    """A mask, and steps that may all be at least zero."""
    last = steps[-1].output[0]
    zero = "f0" if any("f0" in step.input or "half" in step.input for step in steps) else "i0"
    return [
        *size("x", 1, "S"),
        node("Cast", "S", "S_float", to=FLOAT),
        *steps,
        node("GreaterOrEqual", f"{last} {zero}", "some"),
        node("And", "m some", "seen"),
    ]


def expanded(to: str, *before: onnx.NodeProto) -> list[onnx.NodeProto]:
    return [*before, node("Expand", f"m {to}", "seen")]


def joined(times: int) -> list[onnx.NodeProto]:
    names = ["v1", *(f"again{i}" for i in range(times))]
    return [node("Concat", a, b, axis=0) for a, b in pairwise(names)]


PER_ITEM = ("batch", 1, "length")
STATED = helper.make_tensor_value_info("same", FLOAT, ["batch", "length"])
CASES: dict[str, Case] = {
    "sizes -1, another stride": Case(gathered(0), (-1, -1), (2, 5), axes=(-1, -1)),
    "sizes without a name, another stride": Case(gathered(0), ("", ""), (2, 5), axes=("", "")),
    "sizes -1, more than there is": Case(
        expanded("N_vector", *size("longer", 0, "N")),
        (1,),
        (1,),
        1,
        (-1, -1),
        [helper.make_tensor_value_info("longer", FLOAT, [-1])],
        {"longer": np.zeros(4, np.float32)},
    ),
    "flattened at the last axis": Case(
        [
            node("Flatten", "m", "flat", axis=-1),
            *size("x", 0, "B"),
            *size("x", 1, "S"),
            node("Concat", "v1 S_vector v1", "column", axis=0),
            node("Reshape", "flat column", "turned_mask"),
            node("Concat", "B_vector S_vector S_vector", "target", axis=0),
            node("Expand", "turned_mask target", "seen"),
        ],
        ("length",),
        (5,),
    ),
    "indices below zero": Case(
        at_least_zero(node("Range", "i0 S i1", "k"), node("Mul", "k minus", "below")),
        PER_ITEM,
        (2, 1, 5),
    ),
    "half steps": Case(
        at_least_zero(node("Range", "half S_float f1", "k")), ("batch", 1, 1), (2, 1, 1), 1
    ),
    "more steps than whole ones": Case(
        at_least_zero(node("Range", "f0 more f1", "k")),
        ("batch", 1, 1),
        (2, 1, 1),
        1,
        ("batch", 1),
    ),
    "a size as bool": Case(
        counted("S_again", node("Cast", "S", "B", to=BOOL), node("Cast", "B", "S_again", to=I64)),
        ("length",),
        (5,),
    ),
    "a size in 8 bits": Case(
        counted(
            "S_again",
            node("Cast", "S", "S8", to=TensorProto.INT8),
            node("Cast", "S8", "S_again", to=I64),
        ),
        ("length",),
        (257,),
        257,
    ),
    "a rank that is stated wrong": Case(
        expanded(
            "W",
            node("Identity", "x", "same"),
            node("Shape", "same", "its_shape"),
            node("Slice", "its_shape minus last", "W"),
        ),
        ("batch", 1, 1),
        (2, 1, 1),
        1,
        stated=[STATED],
    ),
    "steps of infinity": Case(
        at_least_zero(node("Range", "f0 S_float f1", "k"), node("Mul", "k infinite", "far")),
        PER_ITEM,
        (2, 1, 5),
    ),
    "as many ones as a constant has numbers": Case(
        [
            node("Shape", "three", "count"),
            node("ConstantOfShape", "count", "ones", value=helper.make_tensor("o", I64, [1], [1])),
            *expanded("ones"),
        ],
        PER_ITEM,
        (2, 1, 5),
    ),
    "a shape joined too often": Case([*joined(3000), *expanded("again2999")], PER_ITEM, (2, 1, 5)),
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("target", ["portable", "native"])
@pytest.mark.parametrize("name", CASES)
def test_it_gives_what_it_gave(
    name: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    before = gathering(case.model(), tmp_path / "as_it_was", monkeypatch, target=target)
    after = convert(case.model(), tmp_path, target=target)
    (wanted,), (found,) = (outputs(done, case.feed()) for done in (before, after))
    assert found.shape == wanted.shape
    np.testing.assert_array_equal(found, wanted)


def test_an_input_with_a_default_is_no_constant(tmp_path: Path) -> None:
    nodes = [
        *size("x", 1, "S"),
        node("Range", "i0 S i1", "k"),
        node("GreaterOrEqual", "k least", "late"),
        node("And", "m late", "seen"),
    ]
    case = Case(nodes, PER_ITEM, (2, 1, 5), more=[helper.make_tensor_value_info("least", I64, [])])
    proto = case.model()
    proto.graph.initializer.append(numpy_helper.from_array(np.array(0), "least"))
    done = convert(proto, tmp_path)
    feed = case.feed() | {"m": np.ones((2, 1, 5), bool), "least": np.array(2)}
    (found,) = outputs(done, feed)
    assert (found[..., :2] < -5e3).all() and (found[..., 2:] > -5e3).all()


@pytest.mark.parametrize("domain", ["com.microsoft", "example"])
def test_operators_of_other_domains_are_others(domain: str, tmp_path: Path) -> None:
    """com.microsoft has a Range of two inputs."""
    nodes = at_least_zero(node("Range", "i0 S", "k", domain=domain))
    case = Case(nodes, PER_ITEM, (2, 1, 5))
    proto = case.model()
    proto.opset_import.append(helper.make_opsetid("example", 1))
    assert "And" in convert(proto, tmp_path).ops
