"""Quantizes, converts and runs an ONNX model, and says what a user sees of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime as ort

import octavo.onnx
from tests.golden.corpus import Case
from tests.golden.facts import (
    Facts,
    attempt,
    conversion_facts,
    file_facts,
    outputs,
    report_facts,
    under,
)
from tests.golden.graphs import Model

UINT8 = octavo.onnx.QuantType.QUInt8
FORMS: dict[str, Mapping[str, Any]] = {
    "portable": {},
    "native": {"target": "native"},
    "any": {"cpu": "any"},
    "qdq": {"quant_format": "qdq"},
    "per-tensor": {"recipe": "int8-per-tensor"},
    "per-tensor any": {"recipe": "int8-per-tensor", "cpu": "any"},
    "per-tensor qdq": {"recipe": "int8-per-tensor", "quant_format": "qdq"},
    "per-tensor native": {"recipe": "int8-per-tensor", "target": "native"},
    "accurate": {"recipe": "int8-accurate"},
    "accurate any": {"recipe": "int8-accurate", "cpu": "any"},
    "accurate qdq": {"recipe": "int8-accurate", "quant_format": "qdq"},
    "accurate native": {"recipe": "int8-accurate", "target": "native"},
    "block": {"recipe": "int8-block"},
    "block native": {"recipe": "int8-block", "target": "native"},
    "block qdq": {"recipe": "int8-block", "quant_format": "qdq"},
    "float16": {"recipe": "float16"},
    "float16 native": {"recipe": "float16", "target": "native"},
    "uint8": {"weight_type": UINT8},
    "uint8 native": {"weight_type": UINT8, "target": "native"},
    "reduced": {"reduce_range": True},
    "reduced native": {"reduce_range": True, "target": "native"},
}
MAIN = ("portable", "native")
OTHERS = tuple(name for name in FORMS if name not in MAIN)
TURNS = (("portable", "native"), ("native", "portable"))


def session(path: Path) -> ort.InferenceSession:
    """With one thread, silent."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return octavo.onnx.session(path, sess_options=options)


def ran(path: Path, feeds: Mapping[str, Any], *, exact: bool) -> Facts:
    """The file, and its outputs; the error's type where it does not run."""
    facts = file_facts(path)
    try:
        opened = session(path)
        names = [o.name for o in opened.get_outputs()]
        wanted = {i.name for i in opened.get_inputs()}
        found = opened.run(None, {n: a for n, a in feeds.items() if n in wanted})
    except Exception as error:  # noqa: BLE001  # ONNX Runtime's own message has no place here
        return {**facts, "runs": f"no: {type(error).__name__}"}
    return facts | outputs(names, found, exact=exact)


def quantized(folder: Path, model: Model, form: str, *, label: str = "", **more: Any) -> Facts:
    """A model in one form: report, file and outputs; the error's text where it is refused."""
    options = {"verify": False, **FORMS[form], **more}
    proto, feeds = model
    path = folder / f"{form.replace(' ', '_')}.onnx"
    done, failed = attempt(octavo.onnx.quantize_dynamic, proto, path, **options)
    if failed:
        return under(label or form, {"error": failed})
    found = ran(path, feeds, exact=options.get("target") == "native")
    return under(label or form, {**report_facts(done), **found})


def converted(folder: Path, feeds: Mapping[str, Any], source: str, to: str) -> Facts:
    """The file of form `source` for the other target."""
    path = folder / f"{source.replace(' ', '_')}.onnx"
    if not path.exists():
        return {}
    out = folder / f"{path.stem}_to_{to}.onnx"
    done, failed = attempt(octavo.onnx.convert_target, path, out, to=to, verify=False)
    if failed:
        return under(f"{source} to {to}", {"error": failed})
    found = {**conversion_facts(done), **ran(out, feeds, exact=to == "native")}
    return under(f"{source} to {to}", found)


def case(
    make: Callable[[], Model],
    forms: Sequence[str] = MAIN,
    turns: Sequence[tuple[str, str]] = TURNS,
    **more: Any,
) -> Case:
    """A case: a model in several forms, and converted between targets."""

    def run(folder: Path) -> Facts:
        model = make()
        facts: Facts = {}
        for form in forms:
            facts |= quantized(folder, model, form, **more)
        for source, to in turns:
            facts |= converted(folder, model[1], source, to)
        return facts

    return run


def spread(
    models: Mapping[str, Callable[[], Model]],
    step: int = 2,
    **more: Any,
) -> dict[str, Case]:
    """Cases in the main forms and another, half of them converted; neighbours differ in both."""
    return {
        name: case(make, (*MAIN, other(step * i)), TURNS[i % 4 : i % 4 + 1], **more)
        for i, (name, make) in enumerate(models.items())
    }


def other(i: int) -> str:
    """A form that is not one of the main ones."""
    return OTHERS[i % len(OTHERS)]
