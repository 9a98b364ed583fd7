"""Weights of four bits in files: what operators hold, how near the float model, what stays int8."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from octavo.core.group_rounding import round_groups
from octavo.core.kernels import WeightFormat
from octavo.core.qparams import QType
from octavo.errors import ModelError
from octavo.graph.lower.blocks import unpack_bits
from octavo.onnx import convert_target, quantize_dynamic, session
from octavo.recipe import ActivationScheme, Granularity, Recipe, Scheme, WeightScheme
from tests.graphs import (
    BFLOAT16,
    FLOAT16,
    Array,
    Converted,
    convert,
    error,
    run,
    text,
    values,
    weight,
)
from tests.native_target.forms import run as outputs
from tests.onnx.rules.test_presets import expected, feeds, network

FORMS = {"portable": {}, "native": {"target": "native"}, "qdq": {"quant_format": "qdq"}}
forms = pytest.mark.parametrize("form", FORMS)
FORMATS = [f for f in WeightFormat if f.group and not f.minimum]
formats = pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.value)


def recipe_of(fmt: WeightFormat, observer: str = "search") -> Recipe:
    """All layers in this format, activations in groups as long."""
    qtype = QType.INT4 if fmt.bits == 4 else QType.INT8
    w = WeightScheme(qtype, Granularity.BLOCK, not fmt.affine, observer=observer, block=fmt.group)
    a = ActivationScheme(granularity=Granularity.GROUP, group=fmt.group)
    return Recipe(fmt.value, Scheme(w, a))


def linear(k: int, n: int, w: Array | None = None) -> onnx.ModelProto:
    """x [m, k] -> the MatMul `dense` -> y."""
    weights = {"w": weight(k, n, spread=False) if w is None else w}
    return text("[dense] y = MatMul (x, w)", f"float[m, {k}] x", weights=weights)


def initializer(done: Converted, end: str) -> Array:
    (found,) = [i for i in done.proto.graph.initializer if i.name.endswith(end)]
    return numpy_helper.to_array(found)


@pytest.mark.sweep(5)
@forms
@formats
@pytest.mark.parametrize("k", [64, 100], ids=["whole-blocks", "a-part-of-a-block"])
def test_every_format_is_as_near_as_its_rounding(
    fmt: WeightFormat, form: str, k: int, tmp_path: Path
) -> None:
    model, x = linear(k, 40), values(9, k)
    done = convert(model, tmp_path, recipe=recipe_of(fmt), **FORMS[form])
    (y,) = outputs(done, {"x": x})
    held = round_groups(np.ascontiguousarray(weight(k, 40, spread=False).T), fmt)
    exact = x @ held.weight.dequantize().T
    # Activations of 8 bits in groups; the weights' own error is much larger than that with 4.
    assert error(y, exact) < 0.01
    assert done.outcome("dense").sqnr_db == pytest.approx(
        10 * math.log10(held.signal / held.noise), abs=0.1
    )


@formats
def test_matmulnbits_holds_the_integers_of_the_rounding(fmt: WeightFormat, tmp_path: Path) -> None:
    k, n = 100, 40
    done = convert(linear(k, n), tmp_path, recipe=recipe_of(fmt))
    held = round_groups(np.ascontiguousarray(weight(k, n, spread=False).T), fmt).weight
    assert done.ops == ["MatMulNBits"]
    said = {a.name: a.i for a in done.proto.graph.node[0].attribute}
    assert (said["K"], said["N"], said["bits"], said["block_size"]) == (k, n, fmt.bits, fmt.group)
    blocks = fmt.groups(k)
    q = initializer(done, "_quantized")
    assert q.shape == (n, blocks, fmt.group * fmt.bits // 8)
    whole = unpack_bits(q.reshape(n, -1), fmt.bits, blocks * fmt.group)
    assert np.array_equal(whole[:, :k], held.q) and (whole[:, k:] == 1 << (fmt.bits - 1)).all()
    scale = held.scale.astype(np.float32) * held.channel_scale[:, None]
    assert np.array_equal(initializer(done, "_scale").reshape(n, blocks), scale)
    if held.zero is not None:
        zero = unpack_bits(initializer(done, "_zero_point").reshape(n, -1), fmt.bits, blocks)
        assert np.array_equal(zero, held.zero)
    outcome = done.outcome("dense")
    parts = [numpy_helper.to_array(i).nbytes for i in done.proto.graph.initializer]
    assert outcome.bytes_after == sum(parts)


@forms
@pytest.mark.parametrize("recipe", ["int4", "int4-128"])
def test_presets_on_most_kinds_of_layers(recipe: str, form: str, tmp_path: Path) -> None:
    done = convert(network(), tmp_path, recipe=recipe, **FORMS[form])
    for found, reference, bound in zip(outputs(done, feeds()), expected(), (0.2, 0.3), strict=True):
        assert 0.01 < error(found, reference) < bound
    schemes = {o.layer.op: o for o in done.report.layers}
    assert schemes["LSTM"].scheme.startswith("float" if form == "qdq" else "int8 per channel")
    batched = done.outcome("m_node")
    assert batched.scheme.startswith("int8 per channel")
    assert batched.notes == ("int8 per channel: blocks are for weights of two axes",)
    assert all(done.outcome(name).scheme.startswith("int4") for name in ("u_node", "g_node"))


@forms
@pytest.mark.parametrize("kind", [FLOAT16, BFLOAT16], ids=["float16", "bfloat16"])
def test_models_in_16_bits(kind: int, form: str, tmp_path: Path) -> None:
    k, n = 72, 40
    w, t = weight(k, n, spread=False), weight(300, k, spread=False, seed=3)
    narrow = {
        name: helper.make_tensor(name, kind, a.shape, a.ravel()) for name, a in (("w", w), ("t", t))
    }
    body = "[look] r = Gather (t, i) [up] h = MatMul (r, w) y = Cast <to = 1> (h)"
    model = text(body, "int64[m] i", weights=narrow)
    done = convert(model, tmp_path, recipe="int4", **FORMS[form])
    (y,) = outputs(done, {"i": np.arange(9)})
    assert 0.01 < error(y, t[:9] @ w) < 0.2
    assert done.outcome("up").scheme.startswith("int4")


@cache
def tied(k: int) -> onnx.ModelProto:
    """A table of 300 rows that is the output layer's matrix too."""
    body = "[look] e = Gather (table, ids) t = Transpose (table) [head] y = MatMul (e, t)"
    weights = {"table": weight(300, k, spread=False)}
    return text(body, "int64[] ids", "float[] y, float[] e", weights)


@pytest.mark.parametrize(
    ("form", "k", "affine"),  # of 80 the last block is a part of one
    [
        ("portable", 96, False),
        ("portable", 80, True),
        ("native", 80, False),
        ("native", 96, True),
        ("qdq", 80, True),
        ("qdq", 96, False),
    ],
)
def test_a_tied_table_is_stored_once(form: str, k: int, affine: bool, tmp_path: Path) -> None:
    fmt = WeightFormat.grouped(4, 32, affine)
    done = convert(tied(k), tmp_path, recipe=recipe_of(fmt), **FORMS[form])
    feed = {"ids": np.array([[0, 299, 7], [-1, 5, -300]])}
    for found, reference in zip(outputs(done, feed), run(tied(k), feed), strict=True):
        assert error(found, reference) < 0.2
    stored = sum(i.ByteSize() for i in done.proto.graph.initializer)
    if form == "qdq":  # DequantizeLinear would make the whole table float for each lookup
        assert done.outcome("look").scheme == "int8 per channel, weights only"
    else:
        assert stored < 300 * (k + 32) * 0.75


@pytest.mark.parametrize("affine", [False, True], ids=["symmetric", "affine"])
@pytest.mark.parametrize("k", [64, 96, 80], ids=["even", "odd", "a-part-of-a-block"])
def test_a_table_alone_is_looked_up_in_blocks(k: int, affine: bool, tmp_path: Path) -> None:
    table = weight(400, k, spread=False)
    model = text("[look] y = Gather (table, i)", "int64[] i", weights={"table": table})
    fmt = WeightFormat.grouped(4, 32, affine)
    held = round_groups(table, fmt).weight.dequantize()
    feed = {"i": np.array([[0, 399], [-1, -400]])}
    for form in ("portable", "native"):
        done = convert(model, tmp_path, recipe=recipe_of(fmt), **FORMS[form])
        (y,) = outputs(done, feed)
        np.testing.assert_allclose(y, held[feed["i"]], rtol=1e-5, atol=1e-7)
        if form == "portable":
            odd = affine and fmt.groups(k) % 2  # read wrongly by older releases
            assert done.report.min_onnxruntime == ("1.32" if odd else "1.23")


@pytest.mark.parametrize("form", ["portable", "native"])
def test_convolutions_stay_at_8_bits_and_say_so(form: str, tmp_path: Path) -> None:
    weights = {"w": weight(64, 64, 3, 3, spread=False)}
    model = text("[conv] y = Conv (x, w)", "float[1, 64, 6, 6] x", weights=weights)
    done = convert(model, tmp_path, recipe="int4", op_types_to_quantize=["Conv"], **FORMS[form])
    outcome = done.outcome("conv")
    assert outcome.scheme.startswith(("int8", "uint8"))
    assert any("blocks" in note for note in outcome.notes)


@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "affine"])
@pytest.mark.parametrize("block", [16, 256])
def test_lengths_that_only_onnxruntime_has(block: int, symmetric: bool, tmp_path: Path) -> None:
    """Plain blocks of 8 bits may have them; searched ones are refused by name."""
    scheme = WeightScheme(QType.INT8, Granularity.BLOCK, symmetric, block=block)
    done = convert(linear(300, 40), tmp_path, recipe=Recipe("r", Scheme(scheme, None)))
    assert done.ops == ["MatMulNBits"] and len(done.proto.graph.initializer) == 3 - symmetric
    x = values(5, 300)
    assert error(outputs(done, {"x": x})[0], x @ weight(300, 40, spread=False)) < 0.02
    searched = WeightScheme(QType.INT8, Granularity.BLOCK, observer="search", block=block)
    left = convert(
        linear(300, 40), tmp_path, recipe=Recipe("r", Scheme(searched, None)), allow_nothing=True
    )
    assert left.outcome("dense").reason == (
        f"a search of scales goes with blocks of 32, 64, 128, not of {block}"
    )


@forms
def test_weights_that_are_not_finite_name_layer_and_output(form: str, tmp_path: Path) -> None:
    w = weight(64, 40, spread=False)
    w[3, 7] = np.nan
    with pytest.raises(ModelError, match=r"layer 'dense' \(MatMul\): weight 'w'.* 7 .*NaN"):
        convert(linear(64, 40, w), tmp_path, recipe="int4", **FORMS[form])
    assert not list(tmp_path.iterdir())


def test_gemm_with_alpha_bias_and_activation_is_one_node(tmp_path: Path) -> None:
    weights = {"w": weight(40, 64, spread=False), "b": values(40, seed=9)}
    body = "[dense] g = Gemm <transB = 1, alpha = 0.7> (x, w, b) y = Relu (g)"
    model = text(body, "float[m, 64] x", weights=weights)
    feed = {"x": values(5, 64)}
    for form, options in FORMS.items():
        done = convert(model, tmp_path, recipe="int4", **options)
        (y,), (reference,) = outputs(done, feed), run(model, feed)
        assert 0.01 < error(y, reference) < 0.2
        assert form != "native" or done.ops == ["Linear"]


@pytest.mark.sweep(5)
@formats
def test_there_and_back_are_the_same_bits(fmt: WeightFormat, tmp_path: Path) -> None:
    """native -> portable -> native, tables, gates and parts of one layer included."""
    k = 72
    body = """[look] e = Gather (table, ids)
        [gate] g = MatMul (e, gate)
        s = Sigmoid (g)
        silu = Mul (g, s)
        [up] u = MatMul (e, up)
        m = Mul (silu, u)
        [down] d = MatMul (m, down)
        y = Add (d, e)"""
    weights = {"table": weight(300, k, spread=False), "gate": weight(k, 100, spread=False, seed=2)}
    weights |= {"up": weight(k, 100, spread=False, seed=3)}
    weights |= {"down": weight(100, k, spread=False, seed=4)}
    model = text(body, "int64[m] ids", weights=weights)
    paths = [tmp_path / f"{name}.onnx" for name in ("native", "portable", "back")]
    quantize_dynamic(model, paths[0], recipe=recipe_of(fmt), target="native", verify=False)
    there = convert_target(paths[0], paths[1], to="portable")
    assert there.verification.error is not None and there.verification.error < 1e-3
    back = convert_target(paths[1], paths[2], to="native")
    assert back.layers == {"Embedding": 1, "Linear": 3}
    feed = {"ids": np.arange(7)}
    first, last = (session(path).run(None, feed)[0] for path in (paths[0], paths[2]))
    assert np.array_equal(first, last)
    assert "GatedLinear" in [n.op_type for n in onnx.load(paths[2]).graph.node]
