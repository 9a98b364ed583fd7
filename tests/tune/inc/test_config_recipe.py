"""model_wise, optype_wise and op_wise: what layers become, and what else they may become."""

from pathlib import Path

import pytest

from octavo.core.qparams import QType
from octavo.recipe import (
    FLOAT,
    PRESETS,
    ActivationScheme,
    Granularity,
    Kind,
    Layer,
    Recipe,
    Rule,
    Scheme,
    WeightScheme,
    plan,
)
from octavo.tune import Config, load_config

INT8 = PRESETS["int8"]
TENSOR, CHANNEL = Granularity.TENSOR, Granularity.CHANNEL
ROW = ActivationScheme()


def layer(name: str, op: str, kind: Kind = Kind.LINEAR) -> Layer:
    return Layer(name, kind, op, (), 0, None)


LAYERS = [
    layer("/enc/0/MatMul", "MatMul"),
    layer("/enc/1/MatMul", "MatMul"),
    layer("/enc/1/scores", "MatMul", Kind.ACTIVATION_MATMUL),
    layer("/head/Gemm", "Gemm"),
    layer("/conv", "Conv", Kind.CONV),
    layer("/att", "com.microsoft.Attention", Kind.ATTENTION),
]


def load(tmp_path: Path, quantization: str, framework: str = "onnxrt_integerops") -> Config:
    path = tmp_path / "conf.yaml"
    path.write_text(
        f"model: {{name: m, framework: {framework}}}\nquantization:\n"
        f"  approach: post_training_dynamic_quant\n{quantization}\n"
    )
    return load_config(path)


def schemes(config: Config, base: Recipe = INT8) -> dict[str, Scheme]:
    decisions = plan(LAYERS, config.recipe(base, LAYERS))
    return {d.layer.name: d.scheme for d in decisions}


def changed(config: Config, base: Recipe = INT8) -> dict[str, Scheme]:
    """The layers that are held otherwise than `base` holds them."""
    before = {d.layer.name: d.scheme for d in plan(LAYERS, base)}
    return {name: s for name, s in schemes(config, base).items() if s != before[name]}


def test_a_file_that_says_nothing_changes_nothing(tmp_path: Path) -> None:
    for text in ("", "  model_wise:", "  op_wise: {/conv: {}}", "  model_wise: {weight: {bit: 7}}"):
        config = load(tmp_path, text)
        assert config.recipe(INT8) is INT8
        assert config.alternatives(INT8, LAYERS) == []
        assert [config.allowed(one, INT8) for one in LAYERS] == [()] * len(LAYERS)


@pytest.mark.parametrize(
    ("said", "scheme"),
    [
        ("weight: {granularity: per_tensor}", Scheme(WeightScheme(granularity=TENSOR))),
        ("weight: {granularity: per_channel}", Scheme()),
        ("weight: {scheme: asym}", Scheme(WeightScheme(symmetric=False))),
        ("weight: {scheme: asym_float}", Scheme(WeightScheme(symmetric=False))),
        ("weight: {scheme: sym}", Scheme()),
        ("weight: {dtype: uint8}", Scheme(WeightScheme(QType.UINT8))),
        ("weight: {dtype: int8}", Scheme()),
        ("weight: {dtype: fp16}", Scheme(WeightScheme(QType.FLOAT16, TENSOR), None)),
        ("weight: {dtype: fp32}", FLOAT),
        ("weight: {dtype: bf16}", FLOAT),
        ("weight: {algorithm: minmax}", Scheme()),
        ("weight: {algorithm: kl}", Scheme()),
        (
            "weight: {algorithm: kl, granularity: per_tensor}",
            Scheme(WeightScheme(granularity=TENSOR, observer="histogram")),
        ),
        (
            "activation: {granularity: per_tensor}",
            Scheme(WeightScheme(), ActivationScheme(granularity=TENSOR)),
        ),
        ("activation: {dtype: fp32}", Scheme(WeightScheme(), None)),
        ("activation: {dtype: bf16}", Scheme(WeightScheme(), None)),
        ("activation: {dtype: fp16}", Scheme(WeightScheme(), None)),
        ("activation: {dtype: uint8}", Scheme()),
        ("activation: {dtype: int8, scheme: sym, algorithm: kl}", Scheme()),
    ],
)
def test_one_value(tmp_path: Path, said: str, scheme: Scheme) -> None:
    config = load(tmp_path, f"  op_wise:\n    /head/Gemm: {{{said}}}")
    assert schemes(config)["/head/Gemm"] == scheme
    (rule,) = [r for r in config.recipe(INT8).rules if r.regex]
    assert rule == Rule(scheme, regex="/head/Gemm", reason=rule.reason)
    assert rule.line == 5
    says = "quantization.op_wise['/head/Gemm'] says so (line 5)"
    assert rule.reason == (says if scheme is FLOAT else "")
    assert set(changed(config)) <= {"/head/Gemm"}


def test_what_is_left_out_is_as_in_the_base(tmp_path: Path) -> None:
    config = load(tmp_path, "  op_wise: {/head/Gemm: {weight: {scheme: asym}}}")
    assert schemes(config, PRESETS["int8-block"])["/head/Gemm"] == Scheme(
        WeightScheme(symmetric=False, granularity=Granularity.BLOCK, block=32), None
    )
    assert (
        schemes(config, PRESETS["int8-accurate"])["/head/Gemm"] == PRESETS["int8-accurate"].default
    )
    per_tensor = schemes(config, PRESETS["int8-per-tensor"])["/head/Gemm"]
    assert per_tensor.weight == WeightScheme(granularity=TENSOR, symmetric=False)
    assert per_tensor.activation == ActivationScheme(granularity=TENSOR)
    channel = load(tmp_path, "  op_wise: {/head/Gemm: {weight: {granularity: per_channel}}}")
    assert schemes(channel, PRESETS["int8-block"])["/head/Gemm"] == Scheme(WeightScheme(), None)
    act = load(tmp_path, "  op_wise: {/head/Gemm: {activation: {dtype: uint8}}}")
    block = PRESETS["int8-block"].default.weight
    assert schemes(act, PRESETS["int8-block"])["/head/Gemm"] == Scheme(block, ROW)
    int8 = load(tmp_path, "  op_wise: {/head/Gemm: {weight: {dtype: int8}}}")
    assert schemes(int8, Recipe("f", FLOAT))["/head/Gemm"] == Scheme()


def test_model_wise_is_the_default_and_opens_no_type(tmp_path: Path) -> None:
    config = load(tmp_path, "  model_wise: {weight: {granularity: per_tensor}}")
    per_tensor = Scheme(WeightScheme(granularity=TENSOR))
    recipe = config.recipe(INT8)
    assert (recipe.default, recipe.rules) == (per_tensor, INT8.rules)
    assert set(changed(config)) == {"/enc/0/MatMul", "/enc/1/MatMul", "/head/Gemm", "/att"}


def test_a_type_that_is_named_is_opened_and_products_of_activations_stay(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "  optype_wise:\n    Conv: {weight: {dtype: int8}}\n    MatMul: {weight: {scheme: asym}}\n"
        "    Attention: {weight: {dtype: fp32}}",
    )
    affine = Scheme(WeightScheme(symmetric=False))
    assert changed(config) == {
        "/conv": Scheme(),
        "/enc/0/MatMul": affine,
        "/enc/1/MatMul": affine,
        "/att": FLOAT,
    }
    reasons = {d.layer.name: d.reason for d in plan(LAYERS, config.recipe(INT8))}
    assert reasons["/att"] == "quantization.optype_wise.Attention says so (line 7)"


def test_the_strongest_entry_decides(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "  model_wise: {weight: {granularity: per_tensor, scheme: asym}}\n"
        "  optype_wise: {MatMul: {weight: {dtype: uint8}}}\n"
        "  op_wise:\n    '/enc/1.*': {activation: {granularity: per_tensor}}\n"
        "    '/enc/.*': {weight: {dtype: fp32}}",
    )
    model = WeightScheme(granularity=TENSOR, symmetric=False)
    held = schemes(config)
    assert held["/enc/1/MatMul"] == Scheme(model, ActivationScheme(granularity=TENSOR))
    assert held["/enc/0/MatMul"] == FLOAT
    assert held["/head/Gemm"] == Scheme(model)
    assert held["/enc/1/scores"] == FLOAT
    # An entry of a type stands alone, as in Neural Compressor.
    entry = config.entries[-1]
    assert entry.ops == ("MatMul",)
    assert entry.schemes(INT8.default) == (Scheme(WeightScheme(QType.UINT8)),)


def test_names_are_regular_expressions_that_match_whole_names(tmp_path: Path) -> None:
    config = load(tmp_path, "  op_wise: {'/enc/[01]/Mat': {weight: {dtype: fp32}}}")
    assert changed(config) == {}
    config = load(tmp_path, "  op_wise: {'/enc/[01]/Mat.*': {weight: {dtype: fp32}}}")
    assert set(changed(config)) == {"/enc/0/MatMul", "/enc/1/MatMul"}


def test_entries_that_match_nothing_are_told_and_left_out(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "  optype_wise: {MaxPool: {weight: {dtype: fp32}}, Conv: {weight: {dtype: int8}}}\n"
        "  op_wise: {pool1: {weight: {dtype: fp32}}}",
    )
    told = config.all_notes(LAYERS)
    assert told == (
        f"{config.path}:5: quantization.op_wise.pool1 matches no layer, and does nothing",
        f"{config.path}:4: quantization.optype_wise.MaxPool matches no layer, and does nothing",
    )
    assert [r.describe() for r in config.recipe(INT8, LAYERS).rules[:3]] == [
        "kind 'activation_matmul'",
        "op 'Conv'",
        "kind 'conv'",
    ]
    assert "regex 'pool1'" in [r.describe() for r in config.recipe(INT8).rules]


def test_the_first_of_several_values_is_the_recipes_and_the_others_are_alternatives(
    tmp_path: Path,
) -> None:
    config = load(
        tmp_path,
        "  model_wise:\n    weight: {granularity: 'per_channel, per_tensor', dtype: [int8, fp32]}\n"
        "    activation: {dtype: 'uint8, fp32'}\n"
        "  op_wise:\n    /head/Gemm: {weight: {dtype: [uint8]}, activation: {dtype: [uint8]}}",
    )
    per_tensor = WeightScheme(granularity=TENSOR)
    choices = (
        Scheme(),
        Scheme(WeightScheme(), None),
        FLOAT,
        Scheme(per_tensor),
        Scheme(per_tensor, None),
    )
    assert config.recipe(INT8).default == choices[0]
    assert config.allowed(LAYERS[0], INT8) == choices
    unsigned = WeightScheme(QType.UINT8)
    assert config.allowed(LAYERS[3], INT8) == (
        Scheme(unsigned),
        Scheme(WeightScheme(QType.UINT8, TENSOR)),
    )
    # The base leaves these float, and the file does not name them.
    assert config.allowed(LAYERS[2], INT8) == config.allowed(LAYERS[4], INT8) == ()
    rules = config.alternatives(INT8, LAYERS)
    head = [Scheme(WeightScheme(QType.UINT8, TENSOR))]
    assert [r.scheme for r in rules if r.matches(LAYERS[3])] == head
    assert [r.scheme for r in rules if r.matches(LAYERS[0])] == list(choices[1:])


def test_a_type_that_is_named_has_its_own_alternatives(tmp_path: Path) -> None:
    config = load(tmp_path, "  optype_wise: {Conv: {weight: {dtype: 'fp32, int8'}}}")
    assert config.allowed(LAYERS[4], INT8) == (FLOAT, Scheme())
    assert schemes(config)["/conv"] == FLOAT
    assert config.alternatives(INT8, LAYERS) == [Rule(Scheme(), regex="/conv")]


def test_pytorch_names_are_of_modules(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "  op_wise: {'rnn|fc': {weight: {dtype: fp32}}}\n"
        "  optype_wise: {Attention: {weight: {dtype: fp32}}}",
        "pytorch",
    )
    (op, kind) = config.entries
    assert kind.ops == ("Attention",)
    names = ["rnn", "rnn.l0", "rnn.l12", "fc", "fc.l0", "rnn2", "my.rnn", "rnn.lin"]
    assert [n for n in names if op.matches(layer(n, "LSTM"))] == names[:5]


def test_tensorflow_types_are_those_that_conversion_makes_of_them(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "  optype_wise: {conv2d: {weight: {dtype: int8}}, MatMul: {weight: {dtype: fp32}}}",
        "tensorflow",
    )
    assert changed(config) == {
        "/conv": Scheme(),
        **dict.fromkeys(["/enc/0/MatMul", "/enc/1/MatMul", "/head/Gemm"], FLOAT),
    }


def test_default_qconfig_speaks_of_all_layers(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "  model_wise: {weight: {scheme: asym, dtype: int8}}\n"
        "  op_wise:\n    default_qconfig: {weight: {dtype: fp32}, activation: {dtype: fp32}}\n"
        "    /head/Gemm: {weight: {dtype: int8}, activation: {dtype: uint8}}",
    )
    assert config.recipe(INT8).default == FLOAT
    assert schemes(config)["/head/Gemm"] == Scheme(WeightScheme(symmetric=False))
    assert schemes(config)["/enc/0/MatMul"] == FLOAT


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("weight: {algorithm: kl}", "weight.algorithm: kl chooses one range for a whole weight"),
        ("weight: {dtype: 'int8, bf16'}", "weight.dtype: Octavo has no bfloat16 kernels"),
        ("activation: {dtype: [uint8, bf16]}", "activation.dtype: Octavo has no bfloat16 kernels"),
        ("activation: {dtype: int8}", "activation.dtype: activations are uint8"),
        ("activation: {dtype: 'uint8, fp16'}", "activation.dtype: activations stay float32"),
        ("activation: {scheme: sym}", "activation.scheme: activations keep a zero point"),
        ("activation: {granularity: per_tensor}", "granularity: one scale for a whole activation"),
        ("activation: {dtype: fp32}", "activation.dtype: weights are stored small and activati"),
    ],
)
def test_what_is_done_otherwise_is_noted(tmp_path: Path, said: str, words: str) -> None:
    for where in ("model_wise:", "optype_wise:\n    Conv:", "op_wise:\n    conv1:"):
        (note,) = load(tmp_path, f"  {where} {{{said}}}").notes
        path = f"quantization.{where[:-1].replace(chr(10) + '    ', '').replace(':', '.')}"
        assert note.startswith(f"line {4 if where == 'model_wise:' else 5}: {path}.")
        assert words in note


def test_what_an_entry_leaves_to_model_wise_is_noted_once(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "  model_wise: {activation: {dtype: int8}, weight: {granularity: per_tensor}}\n"
        "  op_wise:\n    conv1: {weight: {algorithm: kl}}\n"
        "    default_qconfig: {weight: {scheme: asym}}",
    )
    (note,) = config.notes
    assert note.startswith("line 4: quantization.model_wise.activation.dtype: ")
    (entry,) = config.entries
    assert entry.schemes(INT8.default) == (
        Scheme(WeightScheme(granularity=TENSOR, observer="histogram", symmetric=False)),
    )


@pytest.mark.parametrize(
    "said",
    [
        "weight: {algorithm: kl, granularity: per_tensor}",
        "weight: {dtype: fp32}, activation: {dtype: fp32}",
        "weight: {dtype: 'int8, fp32'}, activation: {dtype: uint8, scheme: asym}",
    ],
)
def test_what_is_done_as_said_is_not_noted(tmp_path: Path, said: str) -> None:
    assert load(tmp_path, f"  op_wise:\n    conv1: {{{said}}}").notes == ()


def test_settings_of_activations_that_do_nothing_are_idle(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        "  op_wise:\n    conv1:\n      weight: {bit: 7.0}\n"
        "      activation: {compute_dtype: uint8, algorithm: 'minmax, kl'}",
    )
    assert [(i.line, i.path) for i in config.inert] == [
        (6, "quantization.op_wise.conv1.weight.bit"),
        (7, "quantization.op_wise.conv1.activation.compute_dtype"),
        (7, "quantization.op_wise.conv1.activation.algorithm"),
    ]
