"""Shapes that an attention computes of its input, in files for stock ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import octavo.onnx.convert
from tests.native_target.test_attention_fusion import DEPTH, HEADS, QK, SPELLINGS, WIDTH, model
from tests.onnx.helpers import run
from tests.onnx.rules.support import Converted, convert

COMPUTING = {"Shape", "Gather", "Unsqueeze", "Concat"}
READ = {"q3", "k3", "v3", "ot"}
SPLIT, JOINED = [0, 0, HEADS, DEPTH], [0, 0, WIDTH]
MASKED = SPELLINGS["mask"]


def shapes(done: Converted) -> list[list[int] | None]:
    """What each Reshape of the attention asks for; None where the graph computes it."""
    known = {i.name: numpy_helper.to_array(i).tolist() for i in done.proto.graph.initializer}
    of = [n for n in done.proto.graph.node if n.op_type == "Reshape" and n.input[0] in READ]
    return [known.get(n.input[1]) for n in of]


def feeds(batch: int, length: int, mask_batch: int | None = None) -> dict[str, np.ndarray]:
    random = np.random.default_rng(2)
    mask = np.zeros((batch if mask_batch is None else mask_batch, 1, 1, length), np.float32)
    mask[..., length // 2 + 1 :] = -10.0
    return {"x": random.standard_normal((batch, length, WIDTH)).astype(np.float32), "mask": mask}


def computed(proto: onnx.ModelProto, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Converted:
    """The same conversion with shapes left as they are."""
    with monkeypatch.context() as patch:
        patch.setattr(octavo.onnx.convert, "head_shapes", lambda *_: {})
        folder.mkdir()
        return convert(proto, folder)


@pytest.mark.parametrize("spelling", [s for s in SPELLINGS if s != "sizes constant"])
def test_shapes_become_constants(spelling: str, tmp_path: Path) -> None:
    done = convert(model(**SPELLINGS[spelling]), tmp_path)
    assert shapes(done) == [SPLIT, SPLIT, SPLIT, JOINED]
    assert not COMPUTING & set(done.ops)
    assert "4 shapes of attentions are constants, no longer computed" in done.report.notes


@pytest.mark.parametrize(("batch", "length"), [(1, 1), (1, 8), (3, 5)])
def test_not_a_bit_of_the_results_changes(
    batch: int, length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = model(**MASKED)
    before = computed(proto, tmp_path / "computed", monkeypatch)
    assert set(before.ops) >= COMPUTING
    after = convert(proto, tmp_path)
    x = feeds(batch, length)
    (wanted,), (found,) = run(before.path, x), run(after.path, x)
    assert found.shape == (batch, length, WIDTH)
    np.testing.assert_array_equal(found, wanted)


def test_a_mask_for_more_items_than_there_are_no_longer_fails_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one thing that changes: two items' heads were put side by side, too many for a layer."""
    proto = model(**MASKED)
    for value in (proto.graph.input[1], proto.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_param = "masks"
    before = computed(proto, tmp_path / "computed", monkeypatch)
    x = feeds(1, 8, mask_batch=2)
    with pytest.raises(Exception, match="dimension mismatch"):
        run(before.path, x)
    after = run(convert(proto, tmp_path).path, x)[0]
    one = run(before.path, feeds(1, 8))[0]
    np.testing.assert_array_equal(after, np.concatenate([one, one]))


def test_zero_means_as_it_was(tmp_path: Path) -> None:
    """Of a Reshape for which it meant no elements."""
    proto = model(**MASKED)
    for node in proto.graph.node:
        if node.op_type == "Reshape":
            node.attribute.append(helper.make_attribute("allowzero", 1))
    done = convert(proto, tmp_path)
    assert shapes(done) == [SPLIT, SPLIT, SPLIT, JOINED]
    assert run(done.path, feeds(2, 7))[0].shape == (2, 7, WIDTH)


def test_sizes_of_something_else_stay_computed(tmp_path: Path) -> None:
    """Nothing says that a length without a name is that of x."""
    proto = model(**MASKED)
    proto.graph.input.append(helper.make_tensor_value_info("other", onnx.TensorProto.FLOAT, None))
    (shape,) = (n for n in proto.graph.node if n.op_type == "Shape")
    shape.input[0] = "other"
    done = convert(proto, tmp_path, verify=False)
    assert shapes(done) == [None] * 4
    assert done.report.notes == ()


@pytest.mark.parametrize("index", ["zero", "one"])
def test_sizes_in_another_order_stay_computed(index: str, tmp_path: Path) -> None:
    """Batch twice, or length twice, where both happen to be the same."""
    proto = model(**MASKED)
    for node in proto.graph.node:
        if node.op_type == "Concat":
            node.input[:2] = [f"dim_{index}"] * 2
    done = convert(proto, tmp_path, verify=False)
    if index == "zero":  # [batch, batch, -1, depth]
        assert shapes(done) == [None] * 4
    assert COMPUTING & set(done.ops)


@pytest.mark.parametrize(
    "options",
    [{"recipe": "int8-per-tensor"}, {"quant_format": "qdq"}, {"recipe": "float16"}],
    ids=["per tensor", "qdq", "float16"],
)
def test_what_looks_as_others_make_it_stays_so(options: dict[str, Any], tmp_path: Path) -> None:
    done = convert(model([QK, ("Mul", ["qk", "eighth"], "logits")]), tmp_path, **options)
    assert shapes(done) == [None] * 4
