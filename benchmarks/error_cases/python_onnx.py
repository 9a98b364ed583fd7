"""Calls of `octavo.onnx` and `octavo.measure` with what does not exist or does not fit."""

from __future__ import annotations

from benchmarks.error_cases.case import AS_ALLOWED, Case

TITLE = "Calls of octavo.onnx, octavo.measure, octavo.recipe"


def _quantize(
    arguments: str, part: str, value: str, allowed: str, fix: str, error: str = ""
) -> Case:
    line = f'octavo.onnx.quantize_dynamic("m.onnx", "o.onnx", {arguments})'
    return Case(line, error or "OptionError", part, value, allowed, fix)


_LEAVE = "leave"
CASES = (
    Case(
        *('octavo.onnx.quantize_dynamic(None, "o.onnx")', "OptionError"),
        *("model_input", "NoneType", "a path or an onnx.ModelProto", "give"),
    ),
    Case(
        *('octavo.onnx.quantize_dynamic("m.onnx", 3)', "OptionError"),
        *("model_output", "int", "a path", "give"),
    ),
    _quantize('["MatMull"]', "op type", "'MatMull'", "Known: ", "'MatMul'", "RecipeError"),
    _quantize('weight_type="QInt9"', "weight_type", "'QInt9'", "Known: QInt8, QUInt8", "'QInt8'"),
    _quantize('per_channel="yes"', "per_channel", "'yes'", "True, False or None", AS_ALLOWED),
    _quantize(
        'nodes_to_quantize="layer0"',
        "nodes_to_quantize",
        "'layer0'",
        "a list of names",
        "such as ['a', 'b*']",
    ),
    _quantize(
        'nodes_to_exclude=["layr0"]',
        "nodes_to_exclude",
        "'layr0'",
        "Known: layer0,",
        "'layer0'",
        "RecipeError",
    ),
    _quantize(
        'extra_options={"WeightSymetric": True}',
        "extra option",
        "'WeightSymetric'",
        "Known: ",
        "'WeightSymmetric'",
    ),
    _quantize(
        'extra_options={"WeightSymmetric": 1}',
        "extra_options['WeightSymmetric']",
        "1",
        "True or False",
        AS_ALLOWED,
    ),
    _quantize(
        'extra_options={"ActivationRestrictedAsymmetric": True}',
        "ActivationRestrictedAsymmetric",
        "True",
        "calibrated activations",
        "leave it out",
    ),
    _quantize(
        'recipe="int8-per-tensor", extra_options={"ActivationSymmetric": True}',
        "ActivationSymmetric",
        "True",
        "asymmetric",
        "rows (recipe 'int8') are symmetric",
    ),
    _quantize(
        'recipe="int8-block", weight_type=octavo.onnx.QuantType.QUInt8',
        "qtype",
        "recipe 'int8-block'",
        "int8 per block",
        _LEAVE,
    ),
    _quantize('recipe="int9"', "preset", "'int9'", "Known: float16,", "'int8'", "RecipeError"),
    _quantize("recipe=3", "recipe", "int", "a preset's name, a .yaml file or a Recipe", "give"),
    _quantize('target="nativ"', "target", "'nativ'", "Known: native, portable", "'native'"),
    _quantize('cpu="avx"', "cpu", "'avx'", "Known: any, vnni", AS_ALLOWED),
    _quantize('quant_format="qqd"', "quant_format", "'qqd'", "Known: qdq, qoperator", "'qdq'"),
    _quantize(
        "check_inputs=3", "check_inputs", "int", "a .npz or .jsonl file", "give", "InputDataError"
    ),
    Case(
        *('octavo.onnx.session("text.onnx")', "ModelError"),
        *(
            "text.onnx",
            "is not an ONNX model",
            "or it is truncated",
            "get the file again",
        ),
    ),
    Case(
        *('octavo.onnx.session("mm.onnx")', "ModelError"),
        *("mm.onnx", "does not exist", ".onnx", "Did you mean 'm.onnx'"),
    ),
    Case(
        *('octavo.onnx.convert_target("portable.onnx", "o.onnx", to="nativ")', "OptionError"),
        *("to", "'nativ'", "Known: native, portable", "Did you mean 'native'"),
    ),
    Case(
        *("octavo.measure.bench({})", "OptionError"),
        *("callables", "is empty", "at least one callable", "give"),
    ),
    Case(
        *("octavo.measure.bench(3)", "OptionError"),
        *("callables", "int", "a dict of names and callables", "give"),
    ),
    Case(
        *('octavo.measure.bench({"a": 3})', "OptionError"),
        *("callables['a']", "int", "a function without arguments", "such as lambda: model(x)"),
    ),
    Case(
        *('octavo.measure.bench({"a": len}, seconds=0)', "OptionError"),
        *("seconds", "0", "a number above 0", "give"),
    ),
    Case(
        *('octavo.recipe.preset("int9")', "RecipeError"),
        *("preset", "'int9'", "Known: float16,", "Did you mean 'int8'"),
    ),
    Case(
        *('octavo.recipe.Recipe.from_dict({"base": "int8", "ruls": []})', "RecipeError"),
        *("a recipe", "'ruls'", "Known: base,", "Did you mean 'rules'"),
    ),
    Case(
        *(
            "kernels.Linear.from_float(np.ones((4, 8), np.float32), activation='gleu')",
            "ValueError",
        ),
        *("activation", "'gleu'", "Known: ", "Did you mean"),
    ),
    Case(
        *(
            "kernels.Linear.from_float(np.ones((4, 8), np.float32))(np.ones((2, 9), np.float32))",
            "ValueError",
        ),
        *("x", "(2, 9)", "[..., 8]", "needs shape"),
    ),
)
