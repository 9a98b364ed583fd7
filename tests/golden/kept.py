"""The committed files: one a group, one line a fact; and how two records differ."""

from __future__ import annotations

import difflib
import json
import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from tests.golden.facts import Fact, Facts

FOLDER = Path(__file__).parent / "kept"
RELATIVE = 1e-5
AS, LONG = "= ", 20  # the same as in another form of the model; from so many characters on
PACKAGES = ("numpy", "onnx", "onnx-ir", "onnxruntime", "torch", "transformers")
Record = Mapping[str, Mapping[str, Facts]]
"""Facts by group and case."""


class Difference(NamedTuple):
    """One fact that is not what it was; None where there is none."""

    case: str
    fact: str
    kept: Fact | None
    now: Fact | None

    def __str__(self) -> str:
        head = f"{self.case}\n  {self.fact}\n"
        a, b = self.kept, self.now
        if isinstance(a, list) and isinstance(b, list) and not (_numbers(a) or _numbers(b)):
            lines = difflib.unified_diff([*map(str, a)], [*map(str, b)], lineterm="", n=0)
            changed = [f"    {line}" for line in lines if not line.startswith(("---", "+++", "@@"))]
            return head + "\n".join(changed)
        return f"{head}    kept {_said(a)}\n    now  {_said(b)}"


def _said(fact: Fact | None) -> str:
    return "(nothing)" if fact is None else json.dumps(fact, ensure_ascii=False)


def differences(
    group: str, kept: Mapping[str, Facts], now: Mapping[str, Facts]
) -> Iterator[Difference]:
    """What differs in the cases of `now` and in those that are in `kept` alone."""
    for case in sorted({*kept, *now}):
        before, after = kept.get(case, {}), now.get(case, {})
        for fact in sorted({*before, *after}):
            a, b = before.get(fact), after.get(fact)
            if not same(a, b):
                yield Difference(f"{group}/{case}", fact, a, b)


def same(a: Fact | None, b: Fact | None) -> bool:
    """Whether two facts are the same; numbers with a tolerance, for the last of them (the norm of
    all) and the size of the largest."""
    if not _numbers(a) or not _numbers(b):
        return a == b
    assert isinstance(a, list) and isinstance(b, list)
    if len(a) != len(b):
        return False
    size = max((abs(float(v)) for v in a[:-2] if v == v), default=0.0)
    return all(
        x == y
        or (x != x and y != y)
        or abs(float(x) - float(y)) <= RELATIVE * max(size, abs(float(x)))
        for x, y in zip(a, b, strict=True)
    )


def _numbers(fact: Fact | None) -> bool:
    return isinstance(fact, list) and bool(fact) and not any(isinstance(v, str) for v in fact)


def path(group: str) -> Path:
    """Of a group's file."""
    return FOLDER / f"{group}.json"


def read(group: str) -> dict[str, Facts]:
    """A group's kept facts by case."""
    where = path(group)
    return expanded(json.loads(where.read_text())) if where.exists() else {}


def expanded(cases: Mapping[str, Any]) -> dict[str, Facts]:
    """With what `text` wrote once only in every place."""
    return {case: _expanded(written) for case, written in cases.items()}


def _expanded(written: Mapping[str, Any]) -> Facts:
    facts: Facts = {}
    for form, own in written.items():
        whole = form
        if isinstance(own, str) and own.startswith(AS):
            whole = own.removeprefix(AS)
        elif not isinstance(own, dict):
            facts[form] = own
            continue
        for tail in written[whole]:
            facts[f"{form}: {tail}"] = _fact(written, whole, tail)
    return facts


def _fact(written: Mapping[str, Any], form: str, tail: str) -> Fact:
    said: Fact = written[form][tail]
    same_as = isinstance(said, str) and said.startswith(AS)
    return _fact(written, str(said).removeprefix(AS), tail) if same_as else said


def text(cases: Mapping[str, Facts]) -> str:
    """JSON with sorted keys and a line for each fact, below the form of the model that it is of:
    `read` gives back what is written."""
    blocks = [f"{_json(case)}: {{\n{_case(cases[case])}\n}}" for case in sorted(cases)]
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def _case(facts: Facts) -> str:
    """A form of which all is as in another one before is one line; a long fact that one before has
    too is `= FORM`."""
    forms: dict[str, dict[str, str]] = {}
    lines = []
    for name in sorted(facts):
        form, _, tail = name.rpartition(": ")
        if form:
            forms.setdefault(form, {})[tail] = _json(facts[name])
        else:
            lines.append(f" {_json(name)}: {_json(facts[name])}")
    if forms.keys() & facts.keys():
        raise ValueError(f"both forms and facts: {sorted(forms.keys() & facts.keys())}")
    wholes: dict[str, str] = {}
    first: dict[tuple[str, str], str] = {}
    for form, own in forms.items():
        whole = wholes.setdefault(_json(own), form)
        if whole != form:
            lines.append(f" {_json(form)}: {_json(AS + whole)}")
            continue
        inner = []
        for tail, said in own.items():
            before = first.setdefault((tail, said), form) if len(said) > LONG else form
            inner.append(f"  {_json(tail)}: {said if before == form else _json(AS + before)}")
        lines.append(f" {_json(form)}: {{\n" + ",\n".join(inner) + "\n }")
    return ",\n".join(lines)


def _json(data: object) -> str:
    return json.dumps(data, ensure_ascii=False)


def write(group: str, cases: Mapping[str, Facts]) -> None:
    """Rewrites a group's file."""
    FOLDER.mkdir(exist_ok=True)
    path(group).write_text(text(cases))


def about() -> dict[str, str]:
    """Where this runs, as far as it may show in values."""
    found = {"machine": platform.machine(), "cpu": _cpu()}
    return found | {name: version(name) for name in PACKAGES}


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    said = dict(line.split(":", 1) for line in lines if ":" in line)
    cleaned = {k.strip(): v.strip() for k, v in said.items()}
    wanted = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")
    flags = (cleaned.get("flags") or cleaned.get("Features") or "").split()
    return f"{cleaned.get('model name', '?')}: {' '.join(f for f in wanted if f in flags)}"
