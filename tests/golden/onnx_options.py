"""The drop-in arguments of `quantize_dynamic`, recipes of one's own, check inputs, `compare`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import octavo.onnx
from octavo.recipe import FLOAT, Kind, Recipe, Rule, Scheme, dump_recipe, load_recipe, preset
from tests.golden.corpus import Case
from tests.golden.facts import Facts, cleaned, error_of, under
from tests.golden.graphs import Model, normal
from tests.golden.onnx_attention import attention, encoder
from tests.golden.onnx_conv import two
from tests.golden.onnx_linear import gemm, mlp, products, wide
from tests.golden.onnx_recurrent import layer
from tests.golden.onnx_runs import FORMS, quantized
from tests.golden.onnx_tables import embed, lookup

Q = octavo.onnx.QuantType
ARGUMENTS: dict[str, dict[str, Any]] = {
    "ops": {"op_types_to_quantize": ["MatMul"]},
    "ops Conv, Gather": {"op_types_to_quantize": ["Conv", "Gather"]},
    "ops Transpose, MatMul": {"op_types_to_quantize": ["Transpose", "MatMul"]},
    "ops LSTM": {"op_types_to_quantize": ["LSTM", "Attention"]},
    "per channel": {"per_channel": True},
    "per tensor": {"per_channel": False},
    "7 bits": {"reduce_range": True},
    "7 bits off": {"reduce_range": False},
    "QInt8": {"weight_type": Q.QInt8},
    "QUInt8": {"weight_type": Q.QUInt8},
    "QUInt8 by name": {"weight_type": "QUInt8"},
    "only": {"nodes_to_quantize": ["*0*", "first*", "head*", "layer*"]},
    "exclude": {"nodes_to_exclude": ["*0*", "first*"]},
    "affine": {"extra_options": {"WeightSymmetric": False}},
    "symmetric": {"extra_options": {"WeightSymmetric": True}},
    "symmetric activations": {"extra_options": {"ActivationSymmetric": True}},
    "no subgraphs": {"extra_options": {"EnableSubgraph": False}},
    "products": {"extra_options": {"MatMulConstBOnly": False}},
    "per tensor, QUInt8": {"recipe": "int8-per-tensor", "weight_type": Q.QUInt8},
    "per tensor, channels": {"recipe": "int8-per-tensor", "per_channel": True},
    "per tensor, 7 bits, any": {"recipe": "int8-per-tensor", "reduce_range": True, "cpu": "any"},
    "affine, QUInt8, native": {
        "weight_type": Q.QUInt8,
        "extra_options": {"WeightSymmetric": False},
        "target": "native",
    },
    "affine, 7 bits, any": {
        "reduce_range": True,
        "extra_options": {"WeightSymmetric": False},
        "cpu": "any",
    },
    "accurate, QUInt8": {"recipe": "int8-accurate", "weight_type": Q.QUInt8},
    "block, 7 bits": {"recipe": "int8-block", "reduce_range": True},
    "nothing allowed": {"nodes_to_exclude": ["*"], "allow_nothing": True},
}
MODELS: dict[str, Callable[[], Model]] = {
    "mlp": lambda: mlp(3, 48),
    "two": two,
    "lookup": lambda: lookup(behind="tied"),
    "gemm": lambda: gemm(b=1),
    "lstm": lambda: layer("LSTM"),
    "attention": lambda: attention(bias="last"),
    "products": products,
}
PARITY = {"mlp": (0, 1), "two": (1,), "lookup": (0,), "lstm": (1,), "attention": (0,)}
PARITY["products"] = (1,)


def arguments(name: str) -> Case:
    """One model with each second set of arguments, the first model with each."""

    def run(folder: Path) -> Facts:
        model, facts, which = MODELS[name](), {}, PARITY[name]
        for i, (label, said) in enumerate(ARGUMENTS.items()):
            if i % 2 in which:
                facts |= quantized(folder, model, "portable", label=label, **said)
        return facts

    return run


def _scheme(weight: dict[str, Any], activation: Any = "row") -> Scheme:
    said: dict[str, Any] = {"weight": weight}
    if activation != "row":
        said["activation"] = activation
    return Scheme.from_dict(said)


SCHEMES: dict[str, Scheme] = {
    "uint8 affine": _scheme({"qtype": "uint8", "symmetric": False}),
    "tensor histogram": _scheme({"granularity": "tensor", "observer": "histogram"}),
    "tensor histogram affine": _scheme(
        {"granularity": "tensor", "observer": "histogram", "symmetric": False, "qtype": "uint8"}
    ),
    "block 16 affine": _scheme({"granularity": "block", "block": 16, "symmetric": False}, None),
    "block 32 uint8": _scheme({"granularity": "block", "block": 32, "qtype": "uint8"}, None),
    "block 64 rows": _scheme({"granularity": "block", "block": 64}),
    "channel, weights only": _scheme({}, None),
    "tensor, weights only": _scheme({"granularity": "tensor"}, None),
    "group 16": _scheme({}, {"granularity": "group", "group": 16}),
    "group 64 affine": _scheme({"symmetric": False}, {"granularity": "group", "group": 64}),
    "channel, tensor": _scheme({}, {"granularity": "tensor"}),
    "tensor, rows": _scheme({"granularity": "tensor"}),
    "7 bits affine": _scheme({"reduce_range": True, "symmetric": False}),
    "float": FLOAT,
}


def schemes(name: str) -> Case:
    """A recipe of one scheme for everything, in one of three forms each."""

    def run(folder: Path) -> Facts:
        facts: Facts = {}
        for i, (label, scheme) in enumerate(SCHEMES.items(), list(MODELS).index(name)):
            recipe = Recipe(name="own", default=scheme)
            form = ("portable", "qdq", "native")[i % 3]
            facts |= under(label, quantized(folder, MODELS[name](), form, recipe=recipe))
        return facts

    return run


def rules(folder: Path) -> Facts:
    """Rules by name, regex, kind and operator; recipes as files."""
    facts: Facts = {}
    recipe = preset("int8").with_rules_first(
        Rule(FLOAT, name="q_*", reason="queries are dear"),
        Rule(preset("int8-accurate").default, regex="(k|v)_0_mm"),
        Rule(preset("int8-block").default, name="up*"),
        Rule(preset("float16").default, name="down*"),
        Rule(Scheme(), kind=Kind.EMBEDDING),
        Rule(FLOAT, op="Gemm"),
    )
    facts["dumped"] = dump_recipe(recipe).splitlines()
    (folder / "r.yaml").write_text(dump_recipe(recipe))
    facts["again"] = str(load_recipe(folder / "r.yaml") == recipe)
    for form in ("portable", "native", "any", "qdq"):
        found = quantized(folder, encoder(1), form, recipe=recipe, verify=True)
        facts |= under("recipe", found)
    facts |= under("file", quantized(folder, encoder(1), "native", recipe=folder / "r.yaml"))
    strict = Recipe(name="strict", default=Scheme(), max_error=1e-9)
    facts["too wrong"] = error_of(
        lambda: octavo.onnx.quantize_dynamic(wide()[0], folder / "o.onnx", recipe=strict)
    )
    for name in ("int8", "int8-per-tensor", "int8-accurate", "int8-block", "float16"):
        facts[f"preset {name}: dumped"] = dump_recipe(preset(name)).splitlines()
    return facts


def checked(folder: Path) -> Facts:
    """Inputs of the check: made up, a mapping, several, .npz and .jsonl."""
    facts: Facts = {}
    x = normal(4, 48)
    np.savez(folder / "i.npz", x=x)
    (folder / "i.jsonl").write_text("".join(f'{{"x": {row[None].tolist()}}}\n' for row in x[:2]))
    given: dict[str, Any] = {
        "made up": None,
        "mapping": {"x": x},
        "several": [{"x": x}, {"x": x[:1]}],
        "npz": folder / "i.npz",
        "jsonl": str(folder / "i.jsonl"),
    }
    for label, inputs in given.items():
        for form in ("portable", "native"):
            found = quantized(folder, mlp(2, 48), form, check_inputs=inputs, verify=True)
            facts[f"{label} {form}: verified"] = found[f"{form}: verified"]
    makers: dict[str, Callable[[], Model]] = {
        "encoder": encoder,
        "two": two,
        "embed": lambda: embed(mask=True),
        "lookup": lookup,
        "lstm": lambda: layer("LSTM", lengths=(5, 2, 0), states=("h", "c")),
        "gathered": lambda: attention(mask="gathered"),
        "given mask": lambda: attention(mask="given"),
    }
    for label, make in makers.items():
        found = quantized(folder, make(), "native", verify=True)
        facts[f"made up for {label}: verified"] = found["native: verified"]
    return facts


def compared(folder: Path) -> Facts:
    """`compare`: layers in order, ranges, what it prints."""
    facts: Facts = {}
    makers: dict[str, Callable[[], Model]] = {
        "mlp": lambda: mlp(3, 48),
        "encoder": encoder,
        "lstm": lambda: layer("LSTM", outs=("Y",), then="linear"),
        "lookup": lambda: lookup(behind="tied"),
        "two": two,
    }
    for name, make in makers.items():
        proto, feeds = make()
        onnx.save(proto, folder / "f.onnx")
        for form in ("portable", "native", "per-tensor"):
            octavo.onnx.quantize_dynamic("f.onnx", folder / "q.onnx", verify=False, **FORMS[form])
            found = octavo.onnx.compare(folder / "f.onnx", folder / "q.onnx", feeds)
            shown = cleaned(str(found)).splitlines()
            facts[f"{name} {form}: printed"] = [" ".join(line.split()) for line in shown]
    return facts


CASES: dict[str, Case] = {
    **{f"arguments, {name}": arguments(name) for name in PARITY},
    **{
        f"schemes, {name}": schemes(name) for name in ("mlp", "gemm", "lookup", "lstm", "attention")
    },
    "rules": rules,
    "check inputs": checked,
    "compare": compared,
}
