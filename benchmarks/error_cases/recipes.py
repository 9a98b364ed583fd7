"""Recipes, presets, layers and operators that do not exist."""

from __future__ import annotations

from benchmarks.error_cases.case import AS_ALLOWED, Case

TITLE = "Recipes, presets, layers, operators"


def _recipe(text: str, part: str, value: str, allowed: str, fix: str) -> Case:
    """`text` as the recipe r.yaml: every message begins with the file and the line."""
    line = "octavo quantize m.onnx --recipe r.yaml"
    return Case(line, 2, part, value, allowed, fix, files={"r.yaml": text})


_RULES = "base: int8\nrules:\n"
CASES = (
    Case(
        *("octavo quantize m.onnx --recipe int9", 2),
        *("--recipe", "'int9'", "Known: float16, int8,", "Did you mean 'int8'"),
    ),
    Case(
        *("octavo quantize m.onnx --recipe rr.yaml", 2),
        *("rr.yaml", "no such recipe file", "Known: conf.yaml, r.yaml", "Did you mean 'r.yaml'"),
        files={"r.yaml": "base: int8\n"},
    ),
    _recipe("base: int8\nmax_eror: 1\n", "r.yaml:2", "'max_eror'", "Known: base,", "'max_error'?"),
    _recipe("base: int9\n", "r.yaml:1", "'int9'", "Known: float16, int8,", "Did you mean 'int8'"),
    _recipe("base: int8\nmax_error: -1\n", "r.yaml:2: max_error", "-1", "above 0", AS_ALLOWED),
    _recipe(
        "base: int8\nmax_error: high\n", "r.yaml:2: `max_error`", "'high'", "a number", AS_ALLOWED
    ),
    _recipe(
        "version: 2\nbase: int8\n", "r.yaml:1: recipe version", "2", "not 1", "write `version: 1`"
    ),
    _recipe("rules: []\n", "r.yaml:1", "needs `default`", "Known: float16, int8,", "or `base`"),
    _recipe("", "r.yaml:1", "the recipe is empty", "base: int8", "start with"),
    _recipe("base: int8\nbase: int8\n", "r.yaml:2: key", "'base'", "there twice", "leave one out"),
    _recipe(
        "base: [int8\n", "r.yaml:", "got '<stream end>'", "expected ',' or ']'", "mend the YAML"
    ),
    _recipe(
        f"{_RULES}- {{nme: a, scheme: float}}\n",
        "r.yaml:3",
        "'nme'",
        "Known: kind, name,",
        "'name'?",
    ),
    _recipe(
        f"{_RULES}- {{name: layer0}}\n",
        "r.yaml:3",
        "a rule needs `scheme`",
        "float, a preset's name, or a mapping",
        AS_ALLOWED,
    ),
    _recipe(
        f"{_RULES}- {{scheme: float}}\n",
        "r.yaml:3",
        "got none",
        "exactly one of name, regex, kind, op",
        AS_ALLOWED,
    ),
    _recipe(
        f"{_RULES}- {{name: layer7, scheme: float}}\n",
        "r.yaml:3: ",
        "'layer7'",
        "Known: layer0, layer1",
        "Did you mean 'layer",
    ),
    _recipe(
        f"{_RULES}- {{regex: 'a(', scheme: float}}\n",
        "r.yaml:3: regex",
        "'a('",
        "unterminated",
        "mend",
    ),
    _recipe(
        f"{_RULES}- {{kind: liner, scheme: float}}\n",
        "r.yaml:3",
        "'liner'",
        "Known: activation_matmul,",
        "'linear'?",
    ),
    _recipe(
        f"{_RULES}- {{op: MatMull, scheme: float}}\n",
        "r.yaml:3: ",
        "'MatMull'",
        "Known: ",
        "'MatMul'",
    ),
    _recipe(
        "default: {weight: {qtype: int4}}\n", "r.yaml:1", "'int4'", "Known: float16,", "'int8'"
    ),
    _recipe(
        "default: {weight: {granularity: row}}\n",
        "r.yaml:1: weight granularity",
        "'row'",
        "'tensor', 'channel' or 'block'",
        AS_ALLOWED,
    ),
    _recipe(
        "default: {weight: {granularity: block, block: 7}}\n",
        "r.yaml:1: block",
        "7",
        "16, 32",
        AS_ALLOWED,
    ),
    _recipe(
        "default: {weight: {observer: minmx}}\n", "r.yaml:1", "'minmx'", "Known: ", "'minmax'?"
    ),
    _recipe(
        "default: {activation: {qtype: int8}}\n",
        "r.yaml:1: activation",
        "'int8'",
        "'uint8'",
        "leave `activation` out",
    ),
    Case(
        *("octavo quantize m.onnx --ops MatMull", 2),
        *("--ops", "'MatMull'", "Known: ", "Did you mean 'MatMul'"),
    ),
    Case(
        *("octavo quantize m.onnx --recipe f.yaml --ops Conv", 2),
        *("--ops", "Conv", "default scheme, which is float", "add a rule with `op`"),
        files={"f.yaml": "name: quiet\ndefault: float\n"},
    ),
    Case(
        *("octavo quantize m.onnx --only 'layr0'", 2),
        *("--only", "'layr0'", "Known: layer0, layer1", "Did you mean 'layer0'"),
    ),
    Case(
        *("octavo quantize m.onnx --exclude 'layr*'", 2),
        *("--exclude", "'layr*'", "Known: layer0, layer1", "Did you mean 'layer"),
    ),
    Case(
        *("octavo quantize m.onnx --exclude 'layer*'", 4),
        *("m.onnx", "MatMul: excluded by name", "--allow-nothing", "Change the recipe"),
    ),
    Case(
        *("octavo quantize models:make --only quary", 2),
        *("--only", "'quary'", "Known: query, value", "Did you mean 'query'?"),
    ),
)
