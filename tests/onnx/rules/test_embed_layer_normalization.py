"""com.microsoft.EmbedLayerNormalization with int8 tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from octavo.errors import NothingQuantizedError
from octavo.onnx import session
from octavo.onnx.operators.gather import reference
from tests.graphs import (
    EXACT,
    FLOAT,
    FLOAT16,
    INT8,
    INT32,
    MS,
    Array,
    assert_close,
    build,
    convert,
    error,
    integer_tensors,
    node,
    run,
    values,
    weight,
)

B, S, H, V, P = 3, 7, 32, 50, 12


def embed(
    *,
    segments: bool = True,
    mask: bool = True,
    outs: int = 2,
    opset: int = 17,
    dtype: int = FLOAT,
    batch: Any = B,
    **attributes: Any,
) -> tuple[Any, dict[str, Array]]:
    kind = np.float16 if dtype == FLOAT16 else np.float32
    tables = {
        "word": weight(V, H, axis=0, seed=1),
        "position": weight(P, H, axis=0, seed=2),
        "gamma": 1 + 0.2 * values(H, seed=3),
        "beta": 0.2 * values(H, seed=4),
    }
    inputs: dict[str, Any] = {"ids": (INT32, (batch, S))}
    feeds: dict[str, Array] = {"ids": np.random.default_rng(5).integers(0, V, (B, S), np.int32)}
    names = ["ids", "", "word", "position", "", "gamma", "beta"]
    if segments:
        tables["segment"] = weight(2, H, axis=0, seed=6)
        inputs["segments"] = (INT32, (batch, S))
        feeds["segments"] = np.repeat(np.int32([[0, 0, 0, 1, 1, 1, 1]]), B, axis=0)
        names[1], names[4] = "segments", "segment"
    if mask:
        inputs["mask"] = (INT32, (batch, S))
        feeds["mask"] = (np.arange(S) < np.array([[S], [4], [1]])).astype(np.int32)
        names.append("mask")
    outputs = ["y", "n", "sum"][:outs]
    types = {"y": (dtype, None), "n": (INT32, None), "sum": (dtype, None)}
    model = build(
        [node("EmbedLayerNormalization", names, outputs, domain=MS, name="embed", **attributes)],
        inputs,
        {o: types[o] for o in outputs},
        {k: v.astype(kind) for k, v in tables.items()},
        opset=opset,
    )
    return model, feeds


@pytest.mark.parametrize(
    ("segments", "mask", "outs", "opset"),
    [
        (True, True, 2, 11),
        (False, False, 3, 11),
        (True, False, 2, 12),
        (True, True, 3, 13),
        (False, True, 2, 13),
        (True, False, 3, 17),
        (False, True, 3, 21),
        (False, False, 2, 21),
    ],
)
def test_every_form(tmp_path: Path, segments: bool, mask: bool, outs: int, opset: int) -> None:
    model, feeds = embed(segments=segments, mask=mask, outs=outs, opset=opset)
    done = convert(model, tmp_path)
    assert "EmbedLayerNormalization" not in done.ops
    assert len(integer_tensors(done)) == (3 if segments else 2)
    actual, expected = run(done.path, feeds), run(model, feeds)
    assert_close(actual[0], expected[0], INT8)
    assert np.array_equal(actual[1], expected[1])  # how many positions each sequence uses
    assert actual[1].dtype == np.int32
    assert np.array_equal(actual[1], [S, 4, 1] if mask else [0, 0, 0])
    if outs > 2:
        assert_close(actual[2], expected[2], INT8)


def test_lookups_follow_the_rules_reference(tmp_path: Path) -> None:
    model, feeds = embed(outs=3)
    done = convert(model, tmp_path)
    found = {i.name: numpy_helper.to_array(i) for i in done.proto.graph.initializer}
    read = {"word": feeds["ids"], "position": np.arange(S), "segment": feeds["segments"]}
    total = sum(
        reference(found[f"{name}_quantized"], found[f"{name}_scale"], indices)
        for name, indices in read.items()
    )
    assert error(run(done.path, feeds)[2], total) <= EXACT


@pytest.mark.parametrize("epsilon", [1e-12, 0.5])
def test_epsilon(tmp_path: Path, epsilon: float) -> None:
    model, feeds = embed(epsilon=epsilon)
    assert_close(run(convert(model, tmp_path).path, feeds)[0], run(model, feeds)[0], INT8)


def test_symbolic_batch(tmp_path: Path) -> None:
    model, feeds = embed(batch="b")
    done = convert(model, tmp_path)
    one = {k: v[1:2] for k, v in feeds.items()}
    together, alone = run(done.path, feeds)[0], run(done.path, one)[0]
    assert np.array_equal(together[1:2], alone)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "float16": ({"dtype": FLOAT16}, {}, "16 bits"),
    "mask_index_type": ({"mask_index_type": 0}, {}, "mask_index_type"),
    "opset-10": ({"opset": 10}, {}, "Range"),
    "three outputs": ({"outs": 3}, {"recipe": "int8-per-tensor"}, "no third output"),
    "per-tensor-qdq": (
        {}, {"recipe": "int8-per-tensor", "quant_format": "qdq"}, "one symmetric scale a row",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("form", "options", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_what_stays_float(
    tmp_path: Path, form: dict[str, Any], options: dict[str, Any], why: str
) -> None:
    model, _ = embed(**form)
    with pytest.raises(NothingQuantizedError, match=why):
        convert(model, tmp_path, **options)


def test_gamma_that_is_computed_stays_float(tmp_path: Path) -> None:
    model, _ = embed()
    model.graph.node[0].input[5] = "given"
    model.graph.input.append(helper.make_tensor_value_info("given", FLOAT, None))
    with pytest.raises(NothingQuantizedError, match="gamma and beta in integers"):
        convert(model, tmp_path, recipe="int8-per-tensor")


def test_position_ids_stay_float(tmp_path: Path) -> None:
    model, _ = embed()
    model.graph.node[0].input.append("positions")
    model.graph.input.add().CopyFrom(model.graph.input[0])
    model.graph.input[-1].name = "positions"
    with pytest.raises(NothingQuantizedError, match="position_ids"):
        convert(model, tmp_path)


def test_the_word_table_may_be_tied_to_the_output_layer(tmp_path: Path) -> None:
    model, feeds = embed()
    model.graph.node.append(node("Gemm", ["flat", "word"], ["logits"], transB=1))
    model.graph.node.insert(1, node("Reshape", ["y", "shape"], ["flat"]))
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1, H]), "shape"))
    model.graph.output[0].name = "logits"
    del model.graph.output[1]
    done = convert(model, tmp_path)
    stored = sorted(name.removesuffix("_quantized") for name in integer_tensors(done))
    assert stored == ["position", "segment", "word"]
    assert_close(run(done.path, feeds)[0], run(model, feeds)[0], INT8)


@pytest.mark.parametrize("options", [{}, {"target": "native"}, {"quant_format": "qdq"}], ids=str)
def test_tables_of_four_bits(tmp_path: Path, options: dict[str, Any]) -> None:
    model, feeds = embed()
    done = convert(model, tmp_path, recipe="int4", **options)
    lookups = "GatherBlockQuantized", "Embedding"
    qdq = "quant_format" in options
    assert qdq or len([op for op in done.ops if op in lookups]) == 3
    (y,) = session(done.path).run(["y"], feeds)
    assert_close(y, run(model, feeds, ["y"])[0], INT8 if qdq else 0.2)
