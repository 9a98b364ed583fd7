"""What lies below a logarithm, or decides a length, stays float by default.

Inputs that are made up would show the logarithm.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from octavo.core.samples import power
from octavo.errors import VerificationError
from octavo.onnx import inspect, session
from octavo.recipe import PRESETS, Kind, Rule, Scheme, preset
from tests.graphs import FLOAT, build, checked, convert, node, normal, run, text
from tests.onnx.inputs.made_up_graphs import guesses

TARGETS = pytest.mark.parametrize("target", ["portable", "native"])
K = 32
ALONE = np.eye(K, dtype=np.float32)
STORED: dict[str, Any] = {
    "w": ALONE, "v": ALONE, "four": np.stack([ALONE] * 4), "bank": ALONE[:, :, None],
    "eps": np.float32(1e-10), "two": np.float32(2), "third": np.float32(1 / 3),
    "most": np.float32(1e9), "last": np.array([-1], np.int64), "times": np.array(2, np.int64),
    "axis": np.array(1, np.int64),
    "some": np.arange(16, dtype=np.int64), "table": power((512, K), np.random.default_rng(0)),
}  # fmt: skip
PRODUCT = "[p] m = MatMul (x, w)"
ROWS = f"float[n, {K}] x"

# What stands between the product's output m and the logarithm's input z.
STEPS = {
    "nothing": "z = Identity (m)",
    "Add": "z = Add (m, eps)",
    "Max": "z = Max (m, eps)",
    "Mul": "z = Mul (two, m)",
    "Div": "z = Div (m, two)",
    "divisor": "z = Div (two, m)",
    "Sqrt": "z = Sqrt (m)",
    "Clip": "z = Clip (m, eps, most)",
    "Pow": "z = Pow (m, third)",
    "Abs": "z = Abs (m)",
    "square": "s = Mul (m, m) z = Add (s, eps)",
    "Sub": "z = Sub (m, eps)",
    "Relu": "r = Relu (m) z = Add (r, eps)",
    "Where": "b = Greater (m, eps) z = Where (b, m, eps)",
    "moved": "t = Transpose (m) r = Reshape (t, last) z = Unsqueeze (r, last)",
    "cast": "d = Cast <to = 11> (m) z = Cast <to = 1> (d)",
    "parts": "a, b = Split <axis = 1> (m) z = Concat <axis = 1> (b, a)",
    "summed": "s = ReduceSum (m, last) z = Add (s, eps)",
    "mean": "s = ReduceMean <axes = [-1]> (m) z = Add (s, eps)",
    "log1p": "z = Add (m, two)",
    "compressed": "r = Relu (m) s = Mul (r, most) z = Add (s, two)",
    "LeakyRelu": "r = LeakyRelu (m) z = Max (r, eps)",
    "Elu": "r = Elu (m) z = Max (r, eps)",
    "CumSum": "r = CumSum (m, axis) z = Max (r, eps)",
    "Trilu": "r = Trilu (m) z = Max (r, eps)",
}
PRODUCTS = {
    "MatMul": PRODUCT,
    "weight first": "t = Transpose (x) [p] m = MatMul (w, t)",
    "Gemm": "[p] m = Gemm <transB = 1> (x, w)",
    "Einsum": '[p] m = Einsum <equation = "nk,kj->nj"> (x, w)',
    "FusedMatMul": "[p] m = com.microsoft.FusedMatMul (x, w)",
    "stack": "[p] m = MatMul (x, four)",
}
LATE = "Log (z)", "ReduceLogSum <axes = [-1]> (z)"
SPECTRA = [
    f"s = {op}" for op in ("Mul (f, f)", "Pow (f, two)", "Abs (f)", "ReduceL2 <axes = [0]> (f)")
]

# Nothing of these needs to be float: what comes before the logarithm has a scale of its own.
OTHERS = {
    "Softmax": "s = Softmax (m) z = Add (s, eps)",
    "Sigmoid": "s = Sigmoid (m) z = Add (s, eps)",
    "Exp": "s = Exp (m) z = Add (s, eps)",
    "activation": "r = Relu (m) z = Add (r, two)",
    "norm": "n = LayerNormalization (m, g) z = Abs (n)",
    "compared": "b = Greater (m, eps) s = Cast <to = 1> (b) z = Add (s, eps)",
}


def graph(body: str, late: str = LATE[0], x: str = ROWS) -> onnx.ModelProto:
    return text(f"{body} y = {late}", x, weights=STORED | {"g": np.ones(K, np.float32)})


def left_float(model: onnx.ModelProto, **options: Any) -> list[str]:
    found = inspect(model, **options).decisions
    return [d.layer.name for d in found if "a logarithm is taken of its output" in d.reason]


@pytest.mark.parametrize("late", LATE, ids=["Log", "ReduceLogSum"])
@pytest.mark.parametrize("steps", STEPS)
def test_a_product_below_a_logarithm(steps: str, late: str) -> None:
    assert left_float(graph(f"{PRODUCT} {STEPS[steps]}", late)) == ["p"]


@TARGETS
@pytest.mark.parametrize("product", PRODUCTS)
def test_every_product(product: str, target: str) -> None:
    model = graph(f"{PRODUCTS[product]} {STEPS['Clip']}")
    assert left_float(model, target=target) == ["p"]


def test_a_lookup() -> None:
    assert left_float(graph("[p] z = Gather (table, i)", x="int64[n] i")) == ["p"]


def test_convolutions_where_they_would_be_int8() -> None:
    body = """[a] a = Conv (x, taps) r = Relu (a) [b] b = Conv (r, taps) s = Mul (b, b)
        [c] c = Conv (s, taps) l = Log (c) [d] d = Conv (l, taps) [e] y = Conv (d, taps)"""
    model = text(body, "float[1, 64, 40] x", weights={"taps": normal(64, 64, 3)})
    assert left_float(model, target="native") == ["b", "c"]
    assert not {d.layer.name: d for d in inspect(model, target="native").decisions}["d"].reason


@pytest.mark.parametrize("steps", OTHERS)
def test_what_forgets_how_large_it_was_changes_nothing(steps: str) -> None:
    model = graph(f"{PRODUCT} {OTHERS[steps]}")
    assert left_float(model) == []
    assert inspect(model).decisions[0].scheme == preset("int8").default


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_what_a_power_spectrum_is_made_of(spectrum: str) -> None:
    """A transform that is a product, before the filters; a layer before others is no such thing."""
    model = graph(f"[first] f = MatMul (x, v) {spectrum} [p] m = MatMul (s, w) {STEPS['Max']}")
    assert left_float(model) == ["first", "p"]


@pytest.mark.parametrize(
    ("between", "float_layers"),
    {
        "s = Identity (f)": ["first", "p"],
        "t = Mul (two, f) s = Add (t, eps)": ["first", "p"],
        "s = Tanh (f)": ["p"],
        "s = Relu (f)": ["p"],
        "s = Add (f, x)": ["p"],  # a branch, as around the blocks of a net
    }.items(),
)
def test_products_that_only_sums_and_factors_part(between: str, float_layers: list[str]) -> None:
    body = f"[first] f = MatMul (x, v) {between} [p] m = MatMul (s, w) {STEPS['Max']}"
    assert left_float(graph(body)) == float_layers


def branch(body: str) -> str:
    other = "e () => (float[] e) { e = Neg (x) }"
    return f"m = If (c) <then_branch = t () => (float[] o) {{ {body} }}, else_branch = {other}>"


BODIES = {
    "product inside": (f"{branch('[p] o = MatMul (x, w)')} y = Log (m)", ", bool c"),
    "logarithm inside": (f"{PRODUCT} {branch('o = Log (m)').replace('m =', 'y =', 1)}", ", bool c"),
    "state of a loop": (
        """[p] m = MatMul (x, w) y = Loop (times, , m) <body = l (int64 i, bool go, float[] s)
        => (bool on, float[] next) { next = Log (s) on = Identity (go) }>""", "",
    ),
    "result of a loop": (
        """m, ms = Loop (times, , x) <body = l (int64 i, bool go, float[] s)
        => (bool on, float[] next, float[] scan) { [p] scan = MatMul (s, w) next = Neg (s)
        on = Identity (go) }> y = Log (ms)""", "",
    ),
    "scanned": (
        """[p] m = MatMul (x, w) y = Scan (m) <num_scan_inputs = 1, body = b (float[] s)
        => (float[] out) { out = Log (s) }>""", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("where", BODIES)
def test_across_bodies(where: str) -> None:
    body, more = BODIES[where]
    names = left_float(text(body, ROWS + more, weights=STORED))
    assert [name.rpartition("/")[2] for name in names] == ["p"]


def test_across_functions() -> None:
    """They are written out before; inputs are made up for the model as it is."""
    log = onnx.helper.make_function(
        "mine", "L", ["a"], ["b"], [onnx.helper.make_node("Log", ["a"], ["b"])],
        [onnx.helper.make_opsetid("", 17)],
    )  # fmt: skip
    nodes = [node("MatMul", ["x", "w"], ["m"], name="p"), node("L", ["m"], ["y"], domain="mine")]
    model = build(
        nodes, [("x", FLOAT, ["n", K])], ["y"], {"w": ALONE}, functions=[log], domains=["mine"]
    )
    assert left_float(model) == ["p"]
    assert (guesses(model)[0]["x"] > 0).all()


@TARGETS
@pytest.mark.parametrize("name", sorted(PRESETS))
def test_presets_give_the_logarithm_that_float_gives(
    tmp_path: Path, name: str, target: str
) -> None:
    """A row over decades, beside a layer that is quantized; float16 has a step for each number."""
    model = graph(f"{PRODUCT} {STEPS['Clip']}")
    model.graph.node.append(node("MatMul", ["x", "u"], ["other"]))
    model.graph.initializer.append(onnx.numpy_helper.from_array(normal(K, 4096), "u"))
    model.graph.output.append(onnx.helper.make_tensor_value_info("other", FLOAT, None))
    done = convert(model, tmp_path, recipe=name, target=target, allow_nothing=name == "float")
    x = power((3, K), np.random.default_rng(1))
    want, got = run(model, {"x": x})[0], session(done.path).run(None, {"x": x})[0]
    np.testing.assert_allclose(got, want, atol=2e-3)


ASKED: dict[str, dict[str, Any]] = {
    "by type": {"op_types_to_quantize": ["MatMul"]},
    "by name": {"nodes_to_quantize": ["p"]},
    "by a rule": {"recipe": preset("int8").with_rules_first(Rule(Scheme(), name="p"))},
    "by a rule for its kind": {
        "recipe": preset("int8").with_rules_first(Rule(Scheme(), kind=Kind.LINEAR))
    },
}


@TARGETS
@pytest.mark.parametrize("how", ASKED)
def test_whoever_asks_gets_it_and_the_check_shows_the_cost(
    tmp_path: Path, target: str, how: str
) -> None:
    model = graph(f"{PRODUCT} {STEPS['Clip']}")
    done = convert(model, tmp_path, target=target, **ASKED[how])
    assert done.outcome("p").quantized
    with pytest.raises(VerificationError, match="too far from the float one"):
        checked(model, tmp_path, target=target, **ASKED[how])


def test_a_glob_is_no_such_wish(tmp_path: Path) -> None:
    done = convert(
        graph(f"{PRODUCT} {STEPS['Clip']}"), tmp_path, nodes_to_quantize=["*"], allow_nothing=True
    )
    assert not done.outcome("p").quantized


IN = {
    "below the product": (f"{PRODUCT} {STEPS['Clip']}", True),
    "below a power of it": (f"{PRODUCT} {STEPS['square']}", True),
    "two products below": (f"f = MatMul (x, v) s = Abs (f) m = MatMul (s, w) {STEPS['Max']}", True),
    "the logarithm's own": (f"z = Max (x, eps) {PRODUCT}", True),
    "of a softmax": (f"{PRODUCT} {OTHERS['Softmax']}", False),
    "raised": (f"{PRODUCT} {STEPS['log1p']}", False),
    "a norm's": (f"{PRODUCT} {OTHERS['norm']}", False),
}


@pytest.mark.parametrize("case", IN)
def test_inputs_that_are_made_up(case: str) -> None:
    """Positive and over decades, in each row, where a logarithm is taken of what they make."""
    body, is_power = IN[case]
    for feed in guesses(graph(body)):
        x = np.abs(feed["x"])
        assert (feed["x"] > 0).all() == is_power
        assert not is_power or (np.log10(x.max(1) / x.min(1)) > 4).all()


@pytest.mark.parametrize("shape", [(257,), (2, 80), (80, 2), (1, 80, 33), (2, 1, 64, 100)])
def test_a_power_is_over_decades_along_each_long_axis(shape: tuple[int, ...]) -> None:
    made = np.log10(power(shape, np.random.default_rng(0)))
    assert made.shape == shape
    for axis, size in enumerate(shape):
        if size > 30:
            assert (made.max(axis) - made.min(axis)).min() > 3
            assert np.abs(np.diff(made, axis=axis)).mean() < 1


# How many steps each word lasts, d, and what is made of their sum.
ROUNDED = {
    "Ceil": "d = Ceil (e)",
    "Floor": "d = Floor (e)",
    "Round": "d = Round (e)",
    "scaled": "s = Mul (e, two) c = Ceil (s) d = Clip (c, eps)",
    "Cast alone": "d = Identity (e)",
}
SHAPED = {
    "Range": "r = Range (nought, n, unit) y = Cast <to = 1> (r)",
    "Expand": "y = Expand (e, size)",
    "ConstantOfShape": "y = ConstantOfShape (size)",
    "Tile": "y = Tile (flat, size)",
    "Reshape": "y = Reshape (flat, size)",
    "Slice": "y = Slice (flat, start, size)",
    "Pad": "both = Concat <axis = 0> (start, size) y = Pad (flat, both)",
}
SPOKEN = """[words] g = Gather (table, i) [p] h = MatMul (g, w) e = Exp (h) {rounded}
    t = ReduceSum <keepdims = 0> (d) n = Cast <to = 7> (t) size = Reshape (n, one)
    flat = Reshape (e, last) {shaped}"""
SHORT = {
    "nought": np.array(0, np.int64), "unit": np.array(1, np.int64), "one": np.array([1], np.int64),
    "start": np.array([0], np.int64),
}  # fmt: skip


def deciding(body: str, **options: Any) -> list[str]:
    model = text(body, "int64[k] i", weights=STORED | SHORT)
    found = inspect(model, **options).decisions
    return [d.layer.name for d in found if "decides how long" in d.reason]


@TARGETS
@pytest.mark.parametrize("shaped", SHAPED)
@pytest.mark.parametrize("rounded", ROUNDED)
def test_a_table_that_decides_a_length(rounded: str, shaped: str, target: str) -> None:
    body = SPOKEN.format(rounded=ROUNDED[rounded], shaped=SHAPED[shaped])
    assert deciding(body, target=target) == ["words"]  # and no product


def test_a_length_inside_a_body() -> None:
    inside = "c = Ceil (s) t = ReduceSum <keepdims = 0> (c) n = Cast <to = 7> (t)"
    body = f"""[words] g = Gather (table, i) n, all = Loop (times, , g) <body = l (int64 j, bool go,
        float[] s) => (bool on, float[] next, int64 n) {{ {inside} next = Neg (s)
        on = Identity (go) }}> y = ConstantOfShape (all)"""
    assert deciding(body) == ["words"]


NO_LENGTHS = {
    "rounded, and no shape": "[words] g = Gather (table, i) y = Round (g)",
    "a shape of a shape": """[words] g = Gather (table, i) s = Shape (g) f = Cast <to = 1> (s)
        h = Floor (f) n = Cast <to = 7> (h) y = Expand (eps, n)""",
    "where the largest is": """[words] g = Gather (table, i) f = Round (g)
        a = ArgMax <axis = 0, keepdims = 0> (f) y = ConstantOfShape (a)""",
}


@pytest.mark.parametrize("body", NO_LENGTHS)
def test_others_decide_none(body: str) -> None:
    assert deciding(NO_LENGTHS[body]) == []


def test_whoever_asks_for_the_table_gets_it() -> None:
    body = SPOKEN.format(rounded=ROUNDED["Ceil"], shaped=SHAPED["Range"])
    asked = preset("int8").with_rules_first(Rule(Scheme(activation=None), name="words"))
    assert deciding(body, recipe=asked) == []
