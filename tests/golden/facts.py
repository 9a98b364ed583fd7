"""What is kept of arrays, files, reports and errors: flat facts, each a word or some numbers."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Fact = str | int | list[str] | list[float]
Facts = dict[str, Fact]

VALUES, DIGITS = 16, 6
HASH = 10  # hexadecimal digits: 40 bits are plenty for a few ten thousand facts
KINDS = {"w": "weights", "layer": "rows"}
SHORT = {"com.microsoft": "ms", "ai.octavo": "octavo"}
UNSTABLE = ("octavo.version", "octavo.layers", "octavo.data", "octavo.operators")
"""Metadata that is not kept by value."""


def digest(data: bytes) -> str:
    """A short hash."""
    return hashlib.sha256(data).hexdigest()[:HASH]


def bits(array: Any) -> str:
    """Type, shape and hash of the bits: `float32[2, 3] 0a1b..`."""
    a = np.asarray(array)
    data = repr(a.tolist()).encode() if a.dtype == object else np.ascontiguousarray(a).tobytes()
    return f"{a.dtype}{list(a.shape)} {digest(data)}"


def values(array: Any) -> list[float]:
    """Evenly spaced elements, the norm and the number of elements; compared with a tolerance."""
    flat = np.asarray(array).astype(np.float64).reshape(-1)
    places = np.unique(np.linspace(0, max(flat.size - 1, 0), VALUES).astype(int))
    picked = [*flat[places], np.linalg.norm(flat), flat.size] if flat.size else [0]
    return [float(f"{v:.{DIGITS}g}") for v in picked]


def outputs(names: Sequence[str], found: Sequence[Any], *, exact: bool) -> Facts:
    """Facts of what a model gives: values, and with `exact` the bits."""
    facts: Facts = {}
    for name, array in zip(names, found, strict=True):
        if exact or np.asarray(array).dtype.kind in "biu":
            facts[f"out {name} bits"] = bits(array)
        if np.asarray(array).dtype.kind == "f":
            facts[f"out {name}"] = values(array)
    return facts


def numbers(fact: Fact | None) -> bool:
    """Whether a fact is numbers of a float output."""
    return isinstance(fact, list) and bool(fact) and not any(isinstance(v, str) for v in fact)


def kind(name: str) -> str:
    """The hash of a line of the record that a fact is in."""
    return "bits" if name.endswith(" bits") else KINDS.get(name.partition(" ")[0], "said")


def line(facts: Mapping[str, Fact]) -> Facts:
    """Return the record's line of one form: the operators, a few numbers of each output whose bits
    follow the processor, and for each other kind of fact their number and one hash."""
    kept: Facts = {}
    hashed: dict[str, list[str]] = {}
    for name, fact in sorted(facts.items()):
        if isinstance(fact, list) and numbers(fact):
            if f"{name} bits" not in facts:
                kept[name] = [*fact[:-2:8], *fact[-2:]]  # type: ignore[list-item]
        elif name in ("ops", "broken"):
            kept[name] = fact
        elif name == "error":
            kept[name] = f"{str(fact).partition(':')[0]} {digest(str(fact).encode())}"
        else:
            hashed.setdefault(kind(name), []).append(f"{name} {fact}")
    return kept | {
        k: f"{len(all_)} {digest(chr(10).join(all_).encode())}" for k, all_ in hashed.items()
    }


def graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and all that its nodes hold."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.node or inner.initializer:
                    yield from graphs(inner)


def file_facts(path: Path) -> Facts:
    """Operators, names of the nodes that are no standard ones, constants, signature, metadata."""
    model = onnx.load(path)
    facts: Facts = {}
    ops: Counter[str] = Counter()
    named = []
    for each in (*graphs(model.graph), *model.functions):
        for node in each.node:
            ops[f"{SHORT.get(node.domain, node.domain)}.{node.op_type}".lstrip(".")] += 1
            if node.domain not in ("", "ai.onnx"):
                named.append(f"{node.op_type} {node.name}{_said(node)}")
    facts["ops"] = " ".join(op if n == 1 else f"{op}:{n}" for op, n in sorted(ops.items()))
    facts["nodes"] = sorted(named)
    for each in graphs(model.graph):
        for tensor in each.initializer:
            if tensor.data_type not in (TensorProto.INT64, TensorProto.BOOL):
                facts[f"w {tensor.name}"] = _tensor(tensor)
    facts["signature"] = " ".join(
        f"{way}:{helper.printable_value_info(v)}"
        for way, infos in (("in", model.graph.input), ("out", model.graph.output))
        for v in infos
    )
    imports = sorted((o.domain or "ai.onnx", o.version) for o in model.opset_import)
    said = {p.key: p.value for p in model.metadata_props}
    kept = {k: v for k, v in said.items() if k not in UNSTABLE}
    facts["file"] = f"ir {model.ir_version}, opsets {imports}, " + ", ".join(
        f"{k}={v}" for k, v in sorted(kept.items())
    )
    if "octavo.layers" in said:
        facts["layers"] = digest(said["octavo.layers"].encode())
    return facts


def _said(node: onnx.NodeProto) -> str:
    """The attributes of a node in short."""
    if not node.attribute:
        return ""
    made = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return " " + digest(repr(sorted((k, str(v)) for k, v in made.items())).encode())[:6]


def _tensor(tensor: onnx.TensorProto) -> str:
    array = numpy_helper.to_array(tensor)
    kind = TensorProto.DataType.Name(tensor.data_type).lower()
    shape = "x".join(map(str, array.shape))
    if array.size == 1 and array.dtype.kind in "iuf":
        return f"{kind}[{shape}] = {array.reshape(-1)[0]!s}"
    return f"{kind}[{shape}] {digest(np.ascontiguousarray(array).tobytes())}"


def report_facts(report: Any) -> Facts:
    """The rows of a report (or conversion, or inspection) and what else it says, but sizes of
    files and times."""
    facts: Facts = {}
    for outcome in report.layers:
        one = outcome.to_dict(str)
        layer = one.pop("layer")
        name = layer.pop("name")
        facts[f"layer {name}"] = f"{_outcome(one)} | {_line(layer)}"
    facts["notes"] = list(report.notes)
    v = report.verification
    facts["verified"] = (
        f"{v.status}, {v.inputs}, runs {v.runs}, at most {v.max_error}, {v.detail!r}, "
        f"on {v.ran_on!r}, unreached {list(v.unreached)}"
    )
    facts["needs"] = f"opset {report.opset}, onnxruntime {report.min_onnxruntime}"
    return facts


def conversion_facts(done: Any) -> Facts:
    """What `convert_target` says."""
    v = done.verification
    return {
        "layers": f"{dict(done.layers)}",
        "notes": list(done.notes),
        "needs": (
            f"opset {done.opset}, onnxruntime {done.min_onnxruntime}, {done.target}/{done.cpu}"
        ),
        "verified": f"{v.status}, {v.inputs}, runs {v.runs}, {v.detail!r}, on {v.ran_on!r}",
    }


def inspection_facts(found: Any) -> Facts:
    """What `inspect` says."""
    facts: Facts = {"recipe": found.recipe_name}
    for d in found.decisions:
        layer = d.layer.to_dict()
        facts[f"layer {layer.pop('name')}"] = (
            f"{d.scheme.describe()}, {d.reason!r} | {_line(layer)}"
        )
    for name in ("opset", "ir_version", "weight_bytes", "macs", "sizes", "uncounted", "quantized"):
        facts[name] = repr(getattr(found, name, None))
    return facts


def _outcome(one: dict[str, Any]) -> str:
    """`scheme reason notes ; bytes, SQNR`."""
    sizes = f"bytes={one['bytes_before']}>{one['bytes_after']} sqnr={_short(one['sqnr_db'])}"
    words = [str(one["scheme"])] + [f"{k}={one[k]}" for k in ("reason", "notes") if one[k]]
    if one["quantized"] != (one["scheme"] != "float"):
        words.insert(0, f"quantized={one['quantized']}")
    return f"{' '.join(words)} ; {sizes}"


def _line(data: Mapping[str, Any]) -> str:
    parts = []
    for key, value in data.items():
        if value in (None, "", [], ()):
            continue
        parts.append(f"{key}={_short(value) if isinstance(value, float) else value}")
    return " ".join(parts)


def _short(number: float | str | None) -> str:
    if isinstance(number, str):
        return number
    return "none" if number is None else f"{number:.2g}" if abs(number) < 1 else f"{number:.1f}"


PATTERNS = (
    (re.compile(r"/tmp/[\w./-]*?octavo-golden-\w+"), "TMP"),
    (re.compile(r"\b\d+(\.\d+)?(e-?\d+)? ?(ms|s|µs|us|seconds?)\b"), "TIME"),
    (re.compile(r"octavo-staging-[0-9a-f]+"), "octavo-staging-X"),
    (re.compile(r"\bONNX Runtime 1\.\d+\.\d+"), "ONNX Runtime VERSION"),
    (re.compile(r"\bOctavo \d+\.\d+\.\d+"), "Octavo VERSION"),
    (re.compile(r"which has Conv1D, "), "which has "),  # where transformers was imported before
    (re.compile(r"0x[0-9a-f]{6,}"), "0xADDRESS"),
    (re.compile(r'"seconds": [\d.e-]+'), '"seconds": "TIME"'),
)


def cleaned(text: str) -> str:
    """Without paths of this run, times and addresses."""
    for pattern, instead in PATTERNS:
        text = pattern.sub(instead, text)
    return text


def error_of(call: Callable[[], Any]) -> str:
    """The error's type and text; `nothing raised` where there is none."""
    try:
        call()
    except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever a user would see
        return cleaned(f"{type(error).__module__}.{type(error).__name__}: {error}")
    return "nothing raised"


def attempt(call: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, str]:
    """What a call gives; or None, and its error in words."""
    made: list[Any] = []
    failed = error_of(lambda: made.append(call(*args, **options)))
    return (made[0], "") if made else (None, failed)


def under(prefix: str, facts: Mapping[str, Fact]) -> Facts:
    """`facts` with a word before their names."""
    return {f"{prefix}: {name}": fact for name, fact in facts.items()}
