"""Calls of `octavo.torch` with what does not exist or does not fit."""

from __future__ import annotations

from benchmarks.error_cases.case import AS_ALLOWED, Case

TITLE = "Calls of octavo.torch"


def _quantize(
    arguments: str, part: str, value: str, allowed: str, fix: str, error: str = ""
) -> Case:
    line = f"octavo.torch.quantize_dynamic(models.make(), {arguments})"
    return Case(line, error or "OptionError", part, value, allowed, fix)


_QUANTIZED = "q = octavo.torch.quantize_dynamic(models.make())\n"
_EXPORT = f'{_QUANTIZED}octavo.torch.export_onnx(q, (torch.ones(2, 8),), "e.onnx"'
_LINEAR = "torch.nn.Linear"
CASES = (
    _quantize(
        '{"quary"}', "qconfig_spec", "'quary'", "Known: query, value", "Did you mean 'query'?"
    ),
    _quantize('{"Linear"}', "qconfig_spec", "'Linear'", "Known: query, value", "pass the type"),
    _quantize("{3}", "qconfig_spec", "3", "a module type", "or a dotted name"),
    _quantize("3", "qconfig_spec", "int", "None, a set of types", "needs"),
    _quantize("set()", "qconfig_spec", "is empty", "name types and modules", "leave it out"),
    _quantize('{"query": 3}', "'query'", "3", "a QConfig, a Scheme, or None", "needs"),
    _quantize('dtype="int9"', "dtype", "'int9'", "Known: float16, ", "Did you mean 'int8'"),
    _quantize("dtype=torch.quint4x2", "dtype", "quint4x2", "4 bits", "use torch.quint8"),
    _quantize("mapping=3", "mapping", "3 is a int", "module types", "needs"),
    _quantize(
        f"mapping={{{_LINEAR}: 3}}",
        "mapping: the value for Linear",
        "3",
        "from_float(module)",
        "needs a type",
    ),
    _quantize(
        'recipe="int9"', "preset", "'int9'", "Known: float16,", "Did you mean 'int8'", "RecipeError"
    ),
    _quantize('{"query"}, recipe="int8"', "recipe and qconfig_spec", "both", "one of them", "give"),
    Case(
        *("octavo.torch.quantize_dynamic(3)", "OptionError"),
        *("model", "int", "a torch.nn.Module", "needs"),
    ),
    Case(
        *(f"{_QUANTIZED}octavo.torch.quantize_dynamic(q)", "AlreadyQuantizedError"),
        *("query", "QuantizedLinear already", "the float model", "quantize"),
    ),
    Case(
        *("octavo.torch.quantize_dynamic(models.bare())", "NothingQuantizedError"),
        *("Sequential", "holds no weights", "allow_nothing=True", "returns it as it is"),
    ),
    Case(
        *("octavo.torch.quantize_dynamic(models.nan())", "ValueError"),
        *("query: weight", "channel 0", "holds NaN or infinity", "leave the layer float"),
    ),
    Case(
        "with torch.device('meta'): model = models.make()\noctavo.torch.quantize_dynamic(model)",
        *("ModelError", "query.weight", "device meta", "values", "load them first"),
    ),
    Case(
        *(
            f"{_QUANTIZED}q(torch.ones(2, 8, requires_grad=True)).sum().backward()",
            "NotTrainableError",
        ),
        *("octavo::linear", "has no backward", "torch.no_grad()", "train the float model"),
    ),
    Case(
        *(
            f"{_QUANTIZED}torch.func.grad(lambda x: q(x).sum())(torch.ones(2, 8))",
            "NotTrainableError",
        ),
        *("torch.func", "asks for a gradient", "torch.no_grad()", "train the float model"),
    ),
    Case(
        *(f"{_QUANTIZED}q.query.weight = torch.ones(16, 8)", "AttributeError"),
        *("QuantizedLinear.weight", "is computed", "the float model", "quantize it again"),
    ),
    Case(
        *(f"{_QUANTIZED}q(torch.ones(2, 9))", "ValueError"),
        *("x", "(2, 9)", "[..., 8]", "needs shape"),
    ),
    Case(
        *(f"{_QUANTIZED}q(torch.ones(2, 8, dtype=torch.int64))", "TypeError"),
        *("x", "int64", "float32, float16, bfloat16 or float64", AS_ALLOWED),
    ),
    Case(
        *("octavo.torch.report(models.make())", "ModelError"),
        *("Net", "has no report", "octavo.torch.quantize_dynamic", "did not return it"),
    ),
    Case(
        *(
            'octavo.torch.export_onnx(models.make(), (torch.ones(2, 8),), "e.onnx")',
            "NothingQuantizedError",
        ),
        *("Net", "has no quantized layer", "octavo.torch.quantize_dynamic", "export what"),
    ),
    Case(
        *(
            f'{_EXPORT}, target="nativ")',
            "OptionError",
        ),
        *("target", "'nativ'", "Known: native, portable", "Did you mean 'native'"),
    ),
    Case(
        *(
            f"{_EXPORT}, opset_version=3)",
            "OptionError",
        ),
        *("opset_version", "3", "needs", AS_ALLOWED),
    ),
    Case(
        *("octavo.torch.qconfig.MinMaxObserver.with_args(qshceme='x')", "OptionError"),
        *("MinMaxObserver.with_args", "'qshceme'", "Known: ", "Did you mean 'qscheme'"),
    ),
    Case(
        "from octavo.torch.qconfig import MinMaxObserver, QConfig\n"
        "QConfig(activation=None, weight=MinMaxObserver())",
        *("OptionError", "weight", "an instance of", "pass the class", "MinMaxObserver.with_args"),
    ),
    Case(
        *(
            'octavo.torch.compare(models.make(), models.make(), {"x": torch.ones(2, 8)})',
            "ModelError",
        ),
        *("quantized_module", "holds no quantized layers", "octavo.torch.quantize_dynamic"),
        "quantize it first",
    ),
)
