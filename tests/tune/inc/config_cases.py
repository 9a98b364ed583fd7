"""Every key of the configuration schema with values that it takes and values that it does not.

`leaves` and `sections` walk the schema itself; a key without values here fails the tests that use
them.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from octavo.tune.inc.schema import ROOT
from octavo.tune.inc.sections import ByName, Kind, key_of
from octavo.tune.inc.values import anything

Place = tuple[str, ...]
Keys = Mapping[str, Kind]
Case = tuple[list[Any], list[tuple[Any, str]]]

POSITIVE: Case = (
    [1, 7, "3"],
    [(0, "1 or more"), (-3, "1 or more"), (1.5, "1 or more"), ("x", "whole"), (True, "whole")],
)
PLACE: Case = ([0, 4], [(-1, "0 or more"), (0.5, "a whole number"), ("x", "a whole number")])
NUMBER: Case = ([1, 0.5, "1e-3", -1], [("x", "a number"), (True, "a number"), ([1], "a number")])
FLAG: Case = ([True, False, "yes", "off"], [("maybe", "true, false"), (1, "true, false")])
TEXT: Case = (
    ["a/b c"],
    [("", "not empty"), (5, "put it in quotes"), (["a"], "text"), (True, "tex")],
)
NAMES: Case = ([[], "a, b", "a b", ["a"], 7], [([["a"]], "text"), ([""], "not empty")])
NUMBERS: Case = ([0.5, "0.1 0.2", "1, 2", [0.1, 2]], [("a b", "a number"), ([], "a list of numb")])
FLAGS: Case = (
    [True, "True, False", [True]],
    [("True, maybe", "true, false"), ([1], "true, false")],
)
BATCHES: Case = ([-1, 10], [(0, "-1 for all"), (-2, "-1 for all"), ("10", "-1 for all")])
COUNTS: Case = (["8, 16, 32", 100, [1, 2]], [("8, x", "1 or more"), (0, "1 or more")])


def word(*known: Any, wrong_value: Any = "nonsense") -> Case:
    return [*known], [(wrong_value, f"allowed: {', '.join(map(str, known))}"), (2.5, "allowed: ")]


def some(*known: str) -> Case:
    valid = [known[0], ", ".join(known), [*known]]
    return valid, [(f"{known[0]}, nonsense", f"allowed: {known[0]}"), ([3], "allowed: ")]


DTYPES = some("int8", "uint8", "fp32", "bf16", "fp16")

# By the end of the path; the longest end that is here counts.
CASES: dict[str, Case] = {
    **dict.fromkeys(["max_trials", "batch_size", "topk"], POSITIVE),
    **dict.fromkeys(["warmup", "boxes", "scores", "classes"], PLACE),
    "num_detections": ([-1, 0], [(-2, "-1 or more"), ("x", "a whole number")]),
    "num_classes": ([2, 21], [(1, "2 or more"), ("x", "a whole number")]),
    "threshold": NUMBER,
    **dict.fromkeys(
        """compare_label performance_only accuracy_criterion.higher_is_better exact
        lowercase""".split(),
        FLAG,
    ),
    **dict.fromkeys(["name", "anno_path", "workspace.path"], TEXT),
    **dict.fromkeys(["inputs", "outputs"], NAMES),
    **dict.fromkeys([f"multi_{key}.weight" for key in ("objectives", "objective")], NUMBERS),
    "multi_metrics.weight": NUMBERS,
    "higher_is_better": FLAGS,
    "average": word("binary", "micro", "macro", "weighted"),
    "GLUE.task": word(*"mrpc qqp qnli rte sts-b cola mnli wnli sst-2".split()),
    "ROC.task": word("dlrm", "dien", "wide_deep"),
    "map_key": (["DetectionBoxes_Precision/mAP"], [("mAP", "DetectionBoxes_Precision/mAP")]),
    "tokenize": word("13a", "intl", "char", "zh", "none"),
    "iteration": BATCHES,
    "sampling_size": COUNTS,
    "framework": word(
        *"onnxrt_integerops onnxrt_qoperator onnxrt_qlinearops onnxrt_qdq".split(),
        *"pytorch pytorch_fx pytorch_ipex tensorflow tensorflow_itex".split(),
    ),
    "version": ([1, 1.0, "1.0"], [(2.0, "from 1 to 1"), ("x", "from 1"), (0, "from 1")]),
    "device": word("cpu"),
    "approach": word(
        *"post_training_static_quant post_training_dynamic_quant post_training_auto_quant".split()
    ),
    "granularity": some("per_channel", "per_tensor"),
    "activation.granularity": some("per_tensor"),
    "weight.scheme": some("asym", "sym", "asym_float"),
    "activation.scheme": some("asym", "sym"),
    "dtype": DTYPES,
    "weight.algorithm": some("minmax", "kl"),
    "iou_thrs": ([0.5, "0.5:0.05:0.95", 1], [(1.5, "from 0 to 1"), ("x", "from 0 to 1")]),
    "map_points": ([0, 11, 101], [(7, "0, 11, 101"), (False, "0, 11, 101")]),
    "strategy.name": word(
        *"auto basic mse random exhaustive bayesian tpe mse_v2 conservative".split()
    ),
    "relative": (
        [0, 0.01, "1%", "0.5 %", "0.01", -0.01, "-1%"],
        [(1, "below 1"), (float("-inf"), "finite"), ("x", '"1%"'), (True, '"1%"')],
    ),
    "absolute": ([0, 2, 0.5, "1%", -1], [(float("nan"), "finite"), ("x", '"1%"'), ([1], '"1%"')]),
    "objective": word("performance", "accuracy", "modelsize", "footprint"),
    **dict.fromkeys(
        ["multi_objectives.objective", "multi_objective.objective"],
        some("performance", "accuracy", "modelsize", "footprint"),
    ),
    "timeout": ([0, 60, 1.5], [(-1, "0 or more"), ("x", "a number"), (True, "a number")]),
    "random_seed": ([0, 9527], [(-1, "from 0 to"), (2**32, "from 0 to"), (1.5, "whole number")]),
    "resume": ([True, "a/history"], [(3, "true, false, or the path"), ("", "path of a history")]),
}

MAPPING = {"a": 1}  # which is no value of any key
NAME = "some/name"  # stands for the names under op_wise and optype_wise
REFUSED = """pruning distillation auto_distillation nas train graph_optimization mixed_precision
model_conversion""".split()


def sections() -> Iterator[tuple[Place, Keys]]:
    """Every section, each that has others in it once, and where it may stand."""
    seen: set[int] = set()

    def walk(kind: Kind, place: Place) -> Iterator[tuple[Place, Keys]]:
        kind = key_of(kind).kind
        if isinstance(kind, Mapping) and id(kind) not in seen:
            if any(isinstance(key_of(inner).kind, Mapping) for inner in kind.values()):
                seen.add(id(kind))
            yield place, kind
            for key, inner in kind.items():
                yield from walk(inner, (*place, key))
        elif isinstance(kind, ByName):
            yield from walk(kind.kind, (*place, NAME))

    yield from walk(ROOT, ())


def leaves(kind: Keys) -> list[str]:
    """The keys of a section that hold a value which is looked at."""
    return [
        key
        for key, inner in kind.items()
        if not isinstance(key_of(inner).kind, (Mapping, ByName))
        and key_of(inner).kind is not anything
        and key not in REFUSED
    ]


def unread(kind: Keys) -> list[str]:
    """The keys of a section whose values are not looked at."""
    return [key for key, inner in kind.items() if key_of(inner).kind is anything]


def required(kind: Keys) -> list[str]:
    """The keys of a section that may not be left out."""
    return [key for key, inner in kind.items() if key_of(inner).needed]


def case(place: Place) -> Case:
    """The values for `place`: of the longest end of its path that is in the table."""
    for start in range(len(place)):
        end = ".".join(place[start:])
        if end in CASES:
            return CASES[end]
    raise LookupError(f"no values for {'.'.join(place)}")


def document(place: Place, values: dict[str, Any]) -> dict[str, Any]:
    """The least configuration whose section at `place` says `values`, and what it needs beside."""
    root: dict[str, Any] = {
        "model": {"name": "m", "framework": "onnxrt_integerops"},
        "quantization": {"approach": "post_training_dynamic_quant"},
    }
    kind: Kind = ROOT
    at = root
    for depth, key in enumerate((*place, "")):
        if isinstance(kind, Mapping):
            for name in required(kind):
                if name != key:
                    at.setdefault(name, sample((*place[:depth], name), child(kind, name)))
        if key:
            kind, at = child(kind, key), at.setdefault(key, {})
    at |= values
    return root


def child(kind: Kind, key: str) -> Kind:
    """What stands at `key` in a section or mapping of the kind `kind`."""
    return key_of(kind.kind if isinstance(kind, ByName) else kind[key]).kind


def sample(place: Place, kind: Kind) -> Any:
    """A value that `place` takes."""
    if isinstance(kind, Mapping):
        return {name: sample((*place, name), child(kind, name)) for name in required(kind)}
    return case(place)[0][0]


def yaml_of(data: dict[str, Any]) -> tuple[str, dict[Place, int]]:
    """`data` as YAML text, and the line of each key."""
    lines: list[str] = []
    found: dict[Place, int] = {(): 1}

    def write(data: dict[str, Any], at: Place) -> None:
        for key, value in data.items():
            found[(*at, key)] = len(lines) + 1
            nested = isinstance(value, dict) and value and value != MAPPING
            said = "" if nested else " " + json.dumps(value)
            lines.append(f"{'  ' * len(at)}{json.dumps(key)}:{said}")
            if nested:
                write(value, (*at, key))

    write(data, ())
    return "\n".join(lines) + "\n", found
