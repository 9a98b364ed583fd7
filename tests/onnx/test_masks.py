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
from octavo.onnx import session
from tests.graphs import Converted, convert
from tests.native_target.test_attention_fusion import SPELLINGS, WIDTH, model

I64, BOOL = onnx.TensorProto.INT64, onnx.TensorProto.BOOL
NOTE = "1 mask is added as given, not gathered or expanded first"
INDEXING = {"Range", "Flatten", "Expand", "And", "Equal", "GreaterOrEqual", "ConstantOfShape"}


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
        graph.input[1].CopyFrom(helper.make_tensor_value_info("tokens", I64, list(self.tokens)))
        numbers = {"n-1": -1, "n0": 0, "n1": 1, "start": self.start, "step": self.step}
        arrays = {name: np.array(number) for name, number in numbers.items()}
        arrays |= {f"a{i}": np.array([i]) for i in range(4)}
        arrays |= {"rest1": np.array([-1]), "least": np.array(self.least), "none": np.zeros(0, int)}
        arrays |= {"low": np.float32(np.finfo(np.float32).min), "nothing": np.float32(0)}
        arrays["stride_axis"] = np.array([self.stride_axis])
        graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in arrays.items())
        for i, node in enumerate(self.nodes()):
            graph.node.insert(i, node)
        if self.also:
            graph.output.append(
                helper.make_tensor_value_info(self.also, onnx.TensorProto.BOOL, None)
            )
        return proto

    def nodes(self) -> list[onnx.NodeProto]:
        def make(op: str, inputs: str, out: str, **attributes: Any) -> None:
            found.append(helper.make_node(op, inputs.split(), [out], **attributes))

        found: list[onnx.NodeProto] = []
        make("Cast", "tokens", "real", to=BOOL)
        for name, of, axis in (("B", "x", 0), ("Q", "x", 1), ("K", "real", 1)):
            make("Shape", of, f"{name}_shape")
            make("Gather", f"{name}_shape n{axis}", f"{name}_size")
            make("Cast", f"{name}_size", name, to=I64)
        make("Range", "n0 B n1", "b")
        make("Range", "n0 Q n1", "q")
        make("Range", "start K step", "k")
        for name, axes in (("b", "123"), ("q", "013"), ("k", "012")):
            for i, axis in enumerate(axes):
                make("Unsqueeze", f"{name + axes[:i]} a{axis}", name + axes[: i + 1])
        make("ConstantOfShape", "none", "true", value=helper.make_tensor("t", BOOL, [1], [True]))
        if self.causal:
            make("LessOrEqual", "k012 q013", "is_seen")
        else:
            make("GreaterOrEqual", "q013 least", "is_seen")
        make("Cast", "is_seen", "seen", to=BOOL)
        make("And", "true seen", "first")
        make("Shape", "real", "real_shape")
        make("Gather", "real_shape stride_axis", "stride")
        make("Flatten", "real", "laid", axis=2)
        make("Mul", "b123 stride", "rows")
        make("Add", "rows k012" if self.swapped else "k012 rows", "index")
        make("Gather", "laid index", "gathered", axis=0)
        make("Shape", "index", "index_shape")
        make("Reshape", "gathered rest1", "listed")
        make("Concat", "index_shape", "listed_shape", axis=0)
        make("Reshape", "listed listed_shape", "there")
        make("Cast", "there", "there_bool", to=BOOL)
        make("And", "first there_bool", "both")
        for name in ("B", "Q", "K"):
            make("Unsqueeze", f"{name}_size a0", f"{name}_dim")
        make("Concat", "B_dim rest1 Q_dim K_dim", "asked", axis=0)
        make("Reshape", "asked rest1", "target")
        make("Shape", "target", "target_shape")
        ones = helper.make_tensor("o", I64, [1], [1])
        make("ConstantOfShape", "target_shape", "ones", value=ones)
        make("Mul", "ones n-1", "marks")
        make("Equal", "target marks", "is_open")
        make("Where", "is_open ones target", "sizes")
        make("Expand", "both sizes", "expanded")
        make("Where", "expanded nothing low", "mask", name="mask")
        return found


def feeds(batch: int, length: int) -> dict[str, np.ndarray]:
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


def outputs(done: Converted, feed: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    return list(session(str(done.path)).run(None, dict(feed)))


@pytest.mark.parametrize("target", ["portable", "native"])
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
    for batch, length in ((1, 1), (1, 8), (3, 5), (5, 3), (2, 1)):
        (wanted,), (found,) = (outputs(d, feeds(batch, length)) for d in (before, after))
        assert found.shape == (batch, length, WIDTH)
        np.testing.assert_array_equal(found, wanted)


OTHERS = {
    "another length": Chain(tokens=("batch", "keys")),
    "sizes without names": Chain(tokens=(None, None)),
    "from the second token on": Chain(start=1),
    "every other token": Chain(step=2),
    "somebody else reads the whole mask": Chain(also="mask"),
}


@pytest.mark.parametrize("target", ["portable", "native"])
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


@pytest.mark.parametrize("target", ["portable", "native"])
@pytest.mark.parametrize("name", GATHERED)
def test_what_is_gathered_from_other_places_is_still_gathered(
    name: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is expanded where it is added."""
    proto = GATHERED[name].model()
    before = gathering(proto, tmp_path / "gathered", monkeypatch, target=target)
    after = convert(proto, tmp_path, target=target)
    assert {"Flatten", "Range"} <= set(after.ops) and "Expand" not in after.ops
    (wanted,), (found,) = (outputs(d, feeds(3, 5)) for d in (before, after))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("also", ["expanded", "there", "is_seen", "both"])
def test_what_somebody_else_reads_is_still_there(
    also: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = Chain(also=also).model()
    before = gathering(proto, tmp_path / "gathered", monkeypatch)
    after = convert(proto, tmp_path)
    assert NOTE in after.report.notes
    pairs = zip(*(outputs(d, feeds(3, 5)) for d in (before, after)), strict=True)
    for wanted, found in pairs:
        np.testing.assert_array_equal(found, wanted)


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
@pytest.mark.parametrize("target", ["portable", "native"])
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
    (wanted,), (found,) = (outputs(d, feed) for d in (before, after))
    np.testing.assert_array_equal(found, wanted)
