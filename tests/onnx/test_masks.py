"""Masks that exporters gather by computed indices, and what must not be taken for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import octavo.onnx.convert
from tests.graphs import BOOL, INT64, Array, Converted, convert, text
from tests.native_target.forms import run as outputs
from tests.native_target.test_attention_fusion import SPELLINGS, WIDTH, model

NOTE = "1 mask is added as given, not gathered or expanded first"
INDEXING = {"Range", "Flatten", "Expand", "And", "Equal", "GreaterOrEqual", "ConstantOfShape"}
TARGETS = pytest.mark.parametrize("target", ["portable", "native"])


@dataclass(frozen=True)
class Chain:
    """What `transformers` 5 computes of the mask [batch, length], and ways to get it wrong."""

    tokens: tuple[str | None, str | None] = ("batch", "length")
    start: int = 0
    step: int = 1
    stride_axis: int = 1
    least: int = 0
    causal: bool = False
    swapped: bool = False
    also: str = ""

    def model(self) -> onnx.ModelProto:
        proto = model(**SPELLINGS["mask"])
        graph = proto.graph
        graph.input[1].CopyFrom(helper.make_tensor_value_info("tokens", INT64, list(self.tokens)))
        arrays = {"n_1": np.array(-1), "n0": np.array(0), "n1": np.array(1)}
        arrays |= {"start": np.array(self.start), "step": np.array(self.step)}
        arrays |= {f"a{i}": np.array([i]) for i in range(4)}
        arrays |= {"rest1": np.array([-1]), "least": np.array(self.least), "none": np.zeros(0, int)}
        arrays |= {"low": np.float32(np.finfo(np.float32).min), "nothing": np.float32(0)}
        arrays["stride_axis"] = np.array([self.stride_axis])
        graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in arrays.items())
        for i, node in enumerate(text(self.body(), "", "").graph.node):
            graph.node.insert(i, node)
        if self.also:
            graph.output.append(helper.make_tensor_value_info(self.also, BOOL, None))
        return proto

    def body(self) -> str:
        sizes = " ".join(
            f"""{name}_shape = Shape ({of}) {name}_size = Gather ({name}_shape, n{axis})
            {name} = Cast <to = 7> ({name}_size) {name}_dim = Unsqueeze ({name}_size, a0)"""
            for name, of, axis in (("B", "x", 0), ("Q", "x", 1), ("K", "real", 1))
        )
        wide = " ".join(
            f"{name + axes[: i + 1]} = Unsqueeze ({name + axes[:i]}, a{axis})"
            for name, axes in (("b", "123"), ("q", "013"), ("k", "012"))
            for i, axis in enumerate(axes)
        )
        seen = "LessOrEqual (k012, q013)" if self.causal else "GreaterOrEqual (q013, least)"
        return f"""real = Cast <to = 9> (tokens) {sizes}
            b = Range (n0, B, n1) q = Range (n0, Q, n1) k = Range (start, K, step) {wide}
            true = ConstantOfShape <value = bool[1] {{1}}> (none)
            is_seen = {seen} seen = Cast <to = 9> (is_seen) first = And (true, seen)
            real_shape = Shape (real) stride = Gather (real_shape, stride_axis)
            laid = Flatten <axis = 2> (real) rows = Mul (b123, stride)
            index = Add ({"rows, k012" if self.swapped else "k012, rows"})
            gathered = Gather <axis = 0> (laid, index) index_shape = Shape (index)
            listed = Reshape (gathered, rest1) listed_shape = Concat <axis = 0> (index_shape)
            there = Reshape (listed, listed_shape) there_bool = Cast <to = 9> (there)
            both = And (first, there_bool)
            asked = Concat <axis = 0> (B_dim, rest1, Q_dim, K_dim) target = Reshape (asked, rest1)
            target_shape = Shape (target)
            ones = ConstantOfShape <value = int64[1] {{1}}> (target_shape)
            marks = Mul (ones, n_1) is_open = Equal (target, marks)
            sizes = Where (is_open, ones, target) expanded = Expand (both, sizes)
            [mask] mask = Where (expanded, nothing, low)"""


def feeds(batch: int, length: int) -> dict[str, Array]:
    random = np.random.default_rng(4)
    tokens = np.ones((batch, length), np.int64)
    tokens[0, length // 2 + 1 :] = 0
    tokens[-1, : length // 3] = 0
    if batch > 2:
        tokens[1] = 0  # nothing to see: all weights are the same
    x = random.standard_normal((batch, length, WIDTH)).astype(np.float32)
    return {"x": x, "tokens": tokens}


def gathering(
    proto: onnx.ModelProto, folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> Converted:
    """The same conversion with masks left as they are."""
    with monkeypatch.context() as patch:
        patch.setattr(octavo.onnx.convert, "masks_of", lambda *_: [])
        folder.mkdir()
        return convert(proto, folder, **options)


def give_the_same(before: Converted, after: Converted, feed: Mapping[str, Array]) -> None:
    for wanted, found in zip(outputs(before, feed), outputs(after, feed), strict=True):
        np.testing.assert_array_equal(found, wanted)


@TARGETS
@pytest.mark.parametrize("chain", [Chain(), Chain(swapped=True)], ids=str)
def test_a_mask_is_read_in_place(
    chain: Chain, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = gathering(chain.model(), tmp_path / "gathered", monkeypatch, target=target)
    assert set(before.ops) >= INDEXING
    after = convert(chain.model(), tmp_path, target=target)
    assert not set(after.ops) & (INDEXING | {"Gather", "Shape", "Concat"})
    assert NOTE in after.report.notes
    filled = [(n.name, list(n.output)) for n in after.proto.graph.node if n.op_type == "Where"]
    # Native attention reads the condition itself.
    assert filled == ([("mask", ["mask"])] if target == "portable" else [])
    for batch, length in ((1, 1), (1, 8), (3, 5), (2, 1)):
        assert outputs(after, feeds(batch, length))[0].shape == (batch, length, WIDTH)
        give_the_same(before, after, feeds(batch, length))


OTHERS = {
    "another length": Chain(tokens=("batch", "keys")),
    "sizes without names": Chain(tokens=(None, None)),
    "from the second token on": Chain(start=1),
    "every other token": Chain(step=2),
    "somebody else reads the whole mask": Chain(also="mask"),
}


@pytest.mark.sweep(2)
@TARGETS
@pytest.mark.parametrize("name", OTHERS)
def test_another_mask_is_left_alone(
    name: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = OTHERS[name].model()
    before = gathering(proto, tmp_path / "gathered", monkeypatch, target=target)
    after = convert(proto, tmp_path, target=target)
    assert NOTE not in after.report.notes
    assert after.ops == before.ops and set(after.ops) >= {"Range", "Flatten"}


GATHERED = {
    "the first queries see nothing": Chain(least=1),
    "causal": Chain(causal=True),
    "another batch": Chain(tokens=("items", "length")),
    "steps of another size": Chain(stride_axis=0),
}


@pytest.mark.parametrize(
    ("name", "target"), [*zip(GATHERED, ["portable", "native"] * 2, strict=True)]
)
def test_what_is_gathered_from_other_places_is_still_gathered(
    name: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is expanded where it is added."""
    proto = GATHERED[name].model()
    before = gathering(proto, tmp_path / "gathered", monkeypatch, target=target)
    after = convert(proto, tmp_path, target=target)
    assert {"Flatten", "Range"} <= set(after.ops) and "Expand" not in after.ops
    give_the_same(before, after, feeds(3, 5))


@pytest.mark.parametrize("also", ["expanded", "there", "is_seen", "both"])
def test_what_somebody_else_reads_is_still_there(
    also: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = Chain(also=also).model()
    before = gathering(proto, tmp_path / "gathered", monkeypatch)
    after = convert(proto, tmp_path)
    assert NOTE in after.report.notes
    give_the_same(before, after, feeds(3, 5))


@pytest.mark.parametrize(
    "options", [{"recipe": "int8-per-tensor"}, {"quant_format": "qdq"}], ids=str
)
def test_forms_of_onnx_runtime_keep_their_mask(options: Any, tmp_path: Path) -> None:
    done = convert(Chain().model(), tmp_path, **options)
    assert set(done.ops) >= INDEXING


def test_a_mask_for_one_item_serves_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model says that there are as many masks as items; with fewer it failed."""
    proto = Chain().model()
    before = gathering(proto, tmp_path / "gathered", monkeypatch)
    feed = feeds(3, 5)
    feed["tokens"] = feed["tokens"][:1]
    with pytest.raises(Exception, match="out of data bounds"):
        outputs(before, feed)
    (found,) = outputs(convert(proto, tmp_path), feed)
    feed["tokens"] = np.repeat(feed["tokens"], 3, axis=0)
    np.testing.assert_array_equal(found, outputs(before, feed)[0])


@pytest.mark.models
@TARGETS
def test_minilm(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.zoo import minilm

    model = onnx.load(minilm.onnx_path("torchscript"))
    feed = minilm.tokenize(["one", "and one longer text", "a text"])
    before = gathering(model, tmp_path / "gathered", monkeypatch, target=target)
    after = convert(model, tmp_path, target=target)
    assert NOTE in after.report.notes
    gone = {"Range", "Expand", "And", "GreaterOrEqual", "Flatten"}
    assert set(before.ops) >= gone and not set(after.ops) & gone
    assert "ReduceSum" not in after.ops  # the mask is one for all heads: nothing looks for NaN
    give_the_same(before, after, feed)
