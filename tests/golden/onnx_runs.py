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
    conversion_facts,
    digest,
    error_of,
    file_facts,
    outputs,
    report_facts,
    under,
)
from tests.golden.graphs import Model

Options = Mapping[str, Any]
FORMS: dict[str, Options] = {
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
    "uint8": {"weight_type": octavo.onnx.QuantType.QUInt8},
    "uint8 native": {"weight_type": octavo.onnx.QuantType.QUInt8, "target": "native"},
    "reduced": {"reduce_range": True},
    "reduced native": {"reduce_range": True, "target": "native"},
}
MAIN = ("portable", "native")
OTHERS = tuple(name for name in FORMS if name not in MAIN)


def session(path: Path) -> ort.InferenceSession:
    """With one thread, silent."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return octavo.onnx.session(path, sess_options=options)


def ran(path: Path, feeds: Mapping[str, Any], *, exact: bool) -> Facts:
    """Outputs of a file; the error's text where it does not run."""
    try:
        opened = session(path)
        names = [o.name for o in opened.get_outputs()]
        wanted = {i.name for i in opened.get_inputs()}
        found = opened.run(None, {n: a for n, a in feeds.items() if n in wanted})
    except Exception as error:  # noqa: BLE001  # ONNX Runtime's own message has no place here
        return {"runs": f"no: {type(error).__name__}"}
    return outputs(names, found, exact=exact)


def quantized(
    folder: Path, model: Model, form: str, *, full: bool = True, verify: bool = True, **more: Any
) -> Facts:
    """A model in one form: report, file and outputs; the error's text where it is refused."""
    options = {**FORMS[form], **more}
    proto, feeds = model
    path = folder / f"{form.replace(' ', '_')}.onnx"
    done: list[Any] = []

    def convert() -> None:
        done.append(octavo.onnx.quantize_dynamic(proto, path, verify=verify, **options))

    failed = error_of(convert)
    if not done:
        return under(form, {"error": failed})
    facts = {**report_facts(done[0]), **file_facts(path)}
    facts |= ran(path, feeds, exact=options.get("target") == "native")
    return under(form, facts if full else brief(facts))


def converted(folder: Path, feeds: Mapping[str, Any], source: str, to: str, **more: Any) -> Facts:
    """The file of form `source` for the other target."""
    path = folder / f"{source.replace(' ', '_')}.onnx"
    label = f"{source} to {to}" + "".join(f" {v}" for k, v in more.items() if k != "verify")
    if not path.exists():
        return {}
    out = folder / f"{label.replace(' ', '_')}.onnx"
    done: list[Any] = []

    def convert() -> None:
        done.append(octavo.onnx.convert_target(path, out, to=to, **{"verify": False, **more}))

    failed = error_of(convert)
    if not done:
        return under(label, {"error": failed})
    facts = {**conversion_facts(done[0]), **file_facts(out)}
    facts |= ran(out, feeds, exact=to == "native")
    return under(label, brief(facts))


def brief(facts: Facts) -> Facts:
    """The same in a few lines: `digest` is `w` (all weights), `n` (names of nodes, signature,
    metadata) and the bits of outputs; `rows` has layers as asked by their number, and others by
    what is said of them."""
    kept: Facts = {}
    weights, rest, exact = [], [], []
    rows: dict[str, list[str]] = {}
    plain: dict[str, list[str]] = {}
    for name, fact in sorted(facts.items()):
        if name.startswith("w "):
            weights.append(f"{name} {fact}")
        elif name in ("signature", "file", "nodes", "needs", "layers"):
            rest.append(f"{name} {fact}")
        elif name.startswith("layer "):
            scheme, _, more = str(fact).split(" | ")[0].partition(" ; ")
            which = rows if "reason=" in scheme or "notes=" in scheme else plain
            which.setdefault(scheme, []).append(f"{name.removeprefix('layer ')} {more}")
        elif name.endswith(" bits"):
            exact.append(f"{name.removeprefix('out ').removesuffix(' bits')} {fact}")
        elif f"{name} bits" in facts:
            continue
        elif isinstance(fact, list) and fact and isinstance(fact[0], float):
            kept[name] = fact if len(fact) < 8 else [*fact[:-2:8], *fact[-2:]]
        elif fact != [] and not (name == "verified" and str(fact).startswith("skipped")):
            kept[name] = fact
    if rows or plain:
        kept["rows"] = [
            *(f"{len(them)} {_words(row)} {_short(them)}" for row, them in plain.items()),
            *(
                f"{', '.join(t.split(' ')[0] for t in them)}: {_words(row)}"
                for row, them in rows.items()
            ),
        ]
    kept["digest"] = f"w{len(weights)} {_short(weights)} n {_short(rest)}" + (
        f" {', '.join(exact)}" if exact else ""
    )
    return kept


def _words(row: str) -> str:
    """A scheme in fewer letters."""
    for long, short in (("activations", "act"), (" per ", "/"), ("weights only", "w only")):
        row = row.replace(long, short)
    return row


def _short(lines: Sequence[str]) -> str:
    return digest("\n".join(lines).encode())


def case(
    make: Callable[[], Model],
    forms: Sequence[str] = MAIN,
    *,
    full: Sequence[str] = MAIN,
    convert: bool = True,
    **more: Any,
) -> Case:
    """A case: a model in several forms, and converted between targets both ways.

    `full`: the forms of which every weight is kept by its name.
    """

    def run(folder: Path) -> Facts:
        model = make()
        facts: Facts = {}
        for form in forms:
            facts |= quantized(folder, model, form, full=form in full, verify=form in full, **more)
        if convert:
            for source in ("portable", "native"):
                to = "native" if source == "portable" else "portable"
                facts |= converted(folder, model[1], source, to)
        return facts

    return run


def spread(i: int, count: int = 4) -> tuple[str, ...]:
    """The main forms and some others, so that neighbouring cases have different ones."""
    start = i * count
    return (*MAIN, *(OTHERS[(start + j) % len(OTHERS)] for j in range(count)))
