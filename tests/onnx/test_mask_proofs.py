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
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.graphs import BOOL, FLOAT, INT64, Array, convert, normal, text
from tests.native_target.forms import run as outputs
from tests.onnx.test_masks import gathering, give_the_same

WIDTH = 32
NUMBERS: Mapping[str, Any] = {
    "i0": np.array(0),
    "i1": np.array(1),
    "v0": np.array([0]),
    "v1": np.array([1]),
    "minus": np.array([-1]),
    "last": np.array([2**31]),
    "rows": np.array([1, 2]),
    "columns": np.array([0, 1]),
    "f0": np.float32(0),
    "f1": np.float32(1),
    "half": np.float32(-0.5),
    "more": np.float32(1.5),
    "infinite": np.float32(np.inf),
    "three": np.array([1, -np.inf, np.nan], np.float32),
    "w": normal(WIDTH, WIDTH) / np.float32(6),
    "low": np.float32(-1e4),
    "zero": np.float32(0),
}


def info(name: str, kind: int, shape: Sequence[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


@dataclass(frozen=True)
class Case:
    """Nodes that make `seen` of the mask `m` and the length of `x` [batch, length, 32]."""

    body: str
    mask: Sequence[int | str]
    given: Sequence[int] = ()
    length: int = 5
    axes: Sequence[int | str] = ("batch", "length")
    more: Sequence[onnx.ValueInfoProto] = ()
    fed: Mapping[str, Array] = field(default_factory=dict)
    stated: Sequence[onnx.ValueInfoProto] = ()

    def model(self) -> onnx.ModelProto:
        """A product in int8, scores of two activations, and the mask added to them."""
        body = f"""[layer] q = MatMul (x, w) turned = Transpose <perm = [0, 2, 1]> (x)
            scores = MatMul (q, turned) {self.body} mask = Where (seen, zero, low)
            y = Add (scores, mask)"""
        proto = text(body, "", weights=NUMBERS)
        x, m = info("x", FLOAT, [*self.axes, WIDTH]), info("m", BOOL, list(self.mask))
        proto.graph.input.extend([x, m, *self.more])
        proto.graph.value_info.extend(self.stated)
        return proto

    def feed(self) -> dict[str, Array]:
        random = np.random.default_rng(1)
        x = random.standard_normal((2, self.length, WIDTH)).astype(np.float32)
        return {"x": x, "m": random.random(self.given) > 0.5, **self.fed}


def size(of: str, axis: int, out: str) -> str:
    """`out`, a number; in a vector of one it is `out`_vector."""
    return f"""{out}_shape = Shape ({of}) {out} = Gather ({out}_shape, i{axis})
        {out}_vector = Gather ({out}_shape, v{axis}) """


GATHERED = f"""{size("x", 0, "B")} {size("x", 1, "S")} {size("m", 0, "stride")}
    b = Range (i0, B, i1) k = Range (i0, S, i1) b3 = Unsqueeze (b, rows)
    k3 = Unsqueeze (k, columns) steps = Mul (b3, stride) index = Add (steps, k3)
    flat = Reshape (m, minus) seen = Gather (flat, index)"""
"""Element b * (a size of the mask) + k for each item and token."""


def counted(casts: str) -> str:
    """The first elements of a mask, as many as a number says."""
    return f"""{size("m", 0, "S")} {casts} k = Range (i0, S_again, i1)
        flat = Reshape (m, minus) seen = Gather (flat, k)"""


def at_least_zero(steps: str, last: str = "k", zero: str = "f0") -> str:
    """A mask, and steps that may all be at least zero."""
    return f"""{size("x", 1, "S")} S_float = Cast <to = 1> (S) {steps}
        some = GreaterOrEqual ({last}, {zero}) seen = And (m, some)"""


def joined(times: int) -> str:
    """A shape joined with nothing, again and again."""
    names = ["v1", *(f"again{i}" for i in range(times))]
    return " ".join(f"{b} = Concat <axis = 0> ({a})" for a, b in pairwise(names))


PER_ITEM = ("batch", 1, "length")
ONE = ("batch", 1, 1)
CASES: dict[str, Case] = {
    "sizes -1, another stride": Case(GATHERED, (-1, -1), (2, 5), axes=(-1, -1)),
    "sizes without a name, another stride": Case(GATHERED, ("", ""), (2, 5), axes=("", "")),
    "sizes -1, more than there is": Case(
        size("longer", 0, "N") + "seen = Expand (m, N_vector)",
        (1,),
        (1,),
        1,
        (-1, -1),
        [info("longer", FLOAT, [-1])],
        {"longer": np.zeros(4, np.float32)},
    ),
    "flattened at the last axis": Case(
        f"""flat = Flatten <axis = -1> (m) {size("x", 0, "B")} {size("x", 1, "S")}
        column = Concat <axis = 0> (v1, S_vector, v1) turned_mask = Reshape (flat, column)
        target = Concat <axis = 0> (B_vector, S_vector, S_vector)
        seen = Expand (turned_mask, target)""",
        ("length",),
        (5,),
    ),
    "indices below zero": Case(
        at_least_zero("k = Range (i0, S, i1) below = Mul (k, minus)", "below", "i0"),
        PER_ITEM,
        (2, 1, 5),
    ),
    "half steps": Case(at_least_zero("k = Range (half, S_float, f1)"), ONE, (2, 1, 1), 1),
    "more steps than whole ones": Case(
        at_least_zero("k = Range (f0, more, f1)"), ONE, (2, 1, 1), 1, ("batch", 1)
    ),
    "a size as bool": Case(
        counted("B = Cast <to = 9> (S) S_again = Cast <to = 7> (B)"), ("length",), (5,)
    ),
    "a size in 8 bits": Case(
        counted("S8 = Cast <to = 3> (S) S_again = Cast <to = 7> (S8)"), ("length",), (257,), 257
    ),
    "a rank that is stated wrong": Case(
        """same = Identity (x) its_shape = Shape (same) W = Slice (its_shape, minus, last)
        seen = Expand (m, W)""",
        ONE,
        (2, 1, 1),
        1,
        stated=[info("same", FLOAT, ["batch", "length"])],
    ),
    "steps of infinity": Case(
        at_least_zero("k = Range (f0, S_float, f1) far = Mul (k, infinite)", "far"),
        PER_ITEM,
        (2, 1, 5),
    ),
    "as many ones as a constant has numbers": Case(
        """count = Shape (three) ones = ConstantOfShape <value = int64[1] {1}> (count)
        seen = Expand (m, ones)""",
        PER_ITEM,
        (2, 1, 5),
    ),
    "a shape joined too often": Case(
        f"{joined(1500)} seen = Expand (m, again1499)", PER_ITEM, (2, 1, 5)
    ),
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("target", ["portable", "native"])
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if "too often" in name else []) for name in CASES],
)
def test_it_gives_what_it_gave(
    name: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    before = gathering(case.model(), tmp_path / "as_it_was", monkeypatch, target=target)
    give_the_same(before, convert(case.model(), tmp_path, target=target), case.feed())


def test_an_input_with_a_default_is_no_constant(tmp_path: Path) -> None:
    body = f"""{size("x", 1, "S")} k = Range (i0, S, i1) late = GreaterOrEqual (k, least)
        seen = And (m, late)"""
    case = Case(body, PER_ITEM, (2, 1, 5), more=[info("least", INT64, [])])
    proto = case.model()
    proto.graph.initializer.append(numpy_helper.from_array(np.array(0), "least"))
    feed = case.feed() | {"m": np.ones((2, 1, 5), bool), "least": np.array(2)}
    (found,) = outputs(convert(proto, tmp_path), feed)
    assert (found[..., :2] < -5e3).all() and (found[..., 2:] > -5e3).all()


@pytest.mark.parametrize("domain", ["com.microsoft", "example"])
def test_operators_of_other_domains_are_others(domain: str, tmp_path: Path) -> None:
    """com.microsoft has a Range of two inputs."""
    body = at_least_zero(f"k = {domain}.Range (i0, S)", "k", "i0")
    proto = Case(body, PER_ITEM, (2, 1, 5)).model()
    proto.opset_import.append(helper.make_opsetid("example", 1))
    assert "And" in convert(proto, tmp_path).ops
