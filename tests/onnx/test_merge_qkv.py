"""Q, K and V as one product, in files for stock ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from octavo.core.metrics import relative_error
from octavo.onnx import quantize_dynamic
from octavo.onnx.check.layer_effects import LayerEffects
from octavo.onnx.check.model_pair import ModelPair
from octavo.onnx.comparing.compare import compare
from octavo.onnx.read.load import load
from tests.graphs import Converted, convert, run, save, text, values, weight
from tests.native_target.test_attention_fusion import SPELLINGS, WIDTH, model, used

ALL = "q3+k3+v3"
MASKED = SPELLINGS["mask"]


def biased(proto: onnx.ModelProto, letters: Sequence[str] = "qkv") -> onnx.ModelProto:
    """A vector added to those projections; it stands first or second in turns."""
    for i, letter in enumerate(letters):
        name = f"{letter}3"
        place = next(j for j, n in enumerate(proto.graph.node) if n.name == name)
        vector = np.linspace(-1, 1 + i, WIDTH, dtype=np.float32)
        proto.graph.initializer.append(numpy_helper.from_array(vector, f"{letter}_bias"))
        proto.graph.node[place].output[0] = f"{letter}2"
        operands = [f"{letter}2", f"{letter}_bias"]
        add = helper.make_node("Add", operands[:: 1 - 2 * (i % 2)], [name], name=f"{letter}_add")
        proto.graph.node.insert(place + 1, add)
    return proto


def products(done: Converted) -> list[str]:
    """The names of the integer products, but for that of the output layer."""
    return [n.name for n in done.proto.graph.node if "Integer" in n.op_type and n.name != "out"]


def apart(
    proto: onnx.ModelProto, folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> Converted:
    with monkeypatch.context() as patch:
        patch.setattr("octavo.graph.rewrite.passes.merge_qkv", lambda *_: [])
        folder.mkdir()
        return convert(proto, folder, **options)


MODELS = {name: lambda name=name: model(**SPELLINGS[name]) for name in SPELLINGS} | {
    "biases": lambda: biased(model(**MASKED)),
    "keys without a bias": lambda: biased(model(**MASKED), "qv"),
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("options", [{}, {"cpu": "any"}, {"recipe": "int8-accurate"}], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_one_product_gives_the_bits_of_three(
    name: str, options: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = MODELS[name]()
    x = used(proto)
    three = apart(proto, tmp_path / "apart", monkeypatch, **options)
    one = convert(proto, tmp_path, **options)
    assert (products(three), products(one)) == (["q3", "k3", "v3"], [ALL])
    assert len(one.ops) < len(three.ops)
    assert "Q, K and V of an attention are one product: 3 layers became fewer" in one.report.notes
    assert len(one.report.quantized) == 4
    assert one.report.layers == three.report.layers
    np.testing.assert_array_equal(run(one.path, x)[0], run(three.path, x)[0])


@pytest.mark.parametrize("opset", [12, 13, 18])
def test_split_takes_the_form_of_the_opset(opset: int, tmp_path: Path) -> None:
    proto = model(**SPELLINGS["sizes constant"])
    proto.opset_import[0].version = opset
    x = used(proto)
    done = convert(proto, tmp_path)
    (split,) = (n for n in done.proto.graph.node if n.op_type == "Split")
    assert len(split.input) == (1 if opset < 13 else 2)
    onnx.checker.check_model(done.proto)
    assert run(done.path, x)[0].shape == (3, 20, WIDTH)


def scaled(proto: onnx.ModelProto) -> None:
    """Only what follows the Transpose may be scaled: a factor between has no place in Split."""
    turn = next(n for n in proto.graph.node if n.output[0] == "qt")
    turn.input[0] = "q5"
    scale = helper.make_node("Mul", ["q4", "half"], ["q5"])
    proto.graph.node.insert(list(proto.graph.node).index(turn), scale)


def read_outside(proto: onnx.ModelProto) -> None:
    proto.graph.output.append(helper.make_tensor_value_info("q3", onnx.TensorProto.FLOAT, None))


def of_something_else(proto: onnx.ModelProto) -> None:
    product = next(n for n in proto.graph.node if n.name == "q3")
    proto.graph.node.insert(0, helper.make_node("Relu", ["x"], ["queries"]))
    product.input[0] = "queries"


def tied(proto: onnx.ModelProto) -> None:
    """A copy of a weight in a joint one would be a second one in the file."""
    for each in proto.graph.node:
        if each.name in ("q3", "out"):
            each.input[1] = "w0"


@pytest.mark.parametrize("change", [scaled, read_outside, of_something_else, tied])
def test_one_that_differs_stays_apart(change: Any, tmp_path: Path) -> None:
    proto = model(**MASKED)
    change(proto)
    x = used(proto)
    done = convert(proto, tmp_path)
    assert products(done) == ["q3", "k3+v3"]
    for wanted, found in zip(run(proto, x), run(done.path, x), strict=True):
        assert relative_error(wanted, found) < 0.03


@pytest.mark.parametrize(
    "options", [{"recipe": "int8-per-tensor"}, {"quant_format": "qdq"}], ids=str
)
def test_other_forms_stay_as_they_are(options: Any, tmp_path: Path) -> None:
    done = convert(model(**MASKED), tmp_path, **options)
    assert not any("+" in n.name for n in done.proto.graph.node)
    assert "Split" not in done.ops


def test_a_float_layer_stays_float(tmp_path: Path) -> None:
    done = convert(model(**MASKED), tmp_path, nodes_to_exclude=["k3"])
    assert products(done) == ["q3+v3"]
    assert "k3" in [n.name for n in done.proto.graph.node if n.op_type == "MatMul"]


def test_weights_in_a_data_file_are_written_once(tmp_path: Path) -> None:
    """They lie there by the time that layers could be put together."""
    done = convert(model(**MASKED), tmp_path, use_external_data_format=True)
    assert {"q3", "k3", "v3"} <= {n.name for n in done.proto.graph.node}
    (data,) = tmp_path.glob("*.data")
    assert data.stat().st_size < 5 * WIDTH * WIDTH


def break_scales(path: Path, letter: str) -> None:
    """Doubles what one of three layers gives."""
    made = onnx.load(path)
    (scales,) = (i for i in made.graph.initializer if i.name.endswith("together_scale"))
    array = numpy_helper.to_array(scales).copy()
    array.reshape(3, WIDTH)["qkv".index(letter)] *= 2
    scales.CopyFrom(numpy_helper.from_array(array, scales.name))
    onnx.save(made, path)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("letter", "qkv")
def test_layers_are_compared_each_by_itself(letter: str, tmp_path: Path) -> None:
    proto = model(**MASKED)
    feed = used(proto)
    source, made = save(proto, tmp_path / "float.onnx"), tmp_path / "int8.onnx"
    report = quantize_dynamic(source, made, verify=False)
    found = compare(source, made, feed)
    assert [layer.name for layer in found.layers if layer.notes] == []
    break_scales(made, letter)
    worst = compare(source, made, feed).layers[0]
    assert worst.name == f"{letter}3" and worst.alone is not None and worst.alone.sqnr_db < 1
    read = load(source)
    pair = ModelPair(read, made, [o.layer.name for o in report.quantized])
    assert LayerEffects(pair, read, report.layers).worst_layer(feed, "y") == f"{letter}3"


@pytest.mark.parametrize("read", ["k", "v"])
@pytest.mark.parametrize("keys", ["q", "k"])
def test_one_projection_may_be_two_of_them(keys: str, read: str, tmp_path: Path) -> None:
    """Values that are the keys themselves, or keys that are the queries."""
    letters = sorted({"q", keys, read})
    body = " ".join(
        f"""{i} = MatMul (x, w{i}) {i}3 = Reshape ({i}, by_heads)
        {i}4 = Transpose <perm = [0, 2, 1, 3]> ({i}3)"""
        for i in letters
    )
    body += f""" turned = Transpose <perm = [0, 1, 3, 2]> ({keys}4) scores = MatMul (q4, turned)
        shares = Softmax <axis = -1> (scores) o = MatMul (shares, {read}4)
        o1 = Transpose <perm = [0, 2, 1, 3]> (o) o2 = Reshape (o1, joined) y = MatMul (o2, wo)"""
    weights = {f"w{i}": weight(32, 32, seed=j) for j, i in enumerate([*letters, "o"])}
    weights |= {"by_heads": np.array([0, 0, 4, 8]), "joined": np.array([0, 0, 32])}
    proto = text(body, "float[B, S, 32] x", weights=weights)
    feed = {"x": values(2, 5, 32)}
    done = convert(proto, tmp_path)
    assert relative_error(run(proto, feed)[0], run(done.path, feed)[0]) < 0.05
