"""The committed files: one a group, one line a fact; and how two records differ."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from tests.golden.facts import Fact, Facts

FOLDER = Path(__file__).parent / "kept"
RELATIVE = 1e-5
AS, LONG = "= ", 40  # the same as in another form of the model; from so many characters on
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
        return f"{self.case}\n  {self.fact}\n    kept {_said(self.kept)}\n    now  {_said(self.now)}"


def _said(fact: Fact | None) -> str:
    return "(nothing)" if fact is None else json.dumps(fact, ensure_ascii=False)


def differences(group: str, kept: Mapping[str, Facts], now: Mapping[str, Facts]) -> Iterator[Difference]:
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
        x == y or (x != x and y != y) or abs(float(x) - float(y)) <= RELATIVE * max(size, abs(float(x)))
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


def expanded(cases: Mapping[str, Facts]) -> dict[str, Facts]:
    """With what `text` wrote once only in every place."""
    return {case: _expanded(facts) for case, facts in cases.items()}


def _expanded(written: Facts) -> Facts:
    forms: dict[str, Facts] = {}
    for name, said in written.items():
        form, tail = _parts(name)
        forms.setdefault(form, {})[tail] = said

    def facts_of(form: str) -> Facts:
        own = forms[form]
        whole = own.get("")
        if form and isinstance(whole, str) and whole.startswith(AS):
            return facts_of(whole.removeprefix(AS))
        return own

    def fact(form: str, tail: str) -> Fact:
        said = facts_of(form)[tail]
        if form and tail and isinstance(said, str) and said.startswith(AS):
            return fact(said.removeprefix(AS), tail)
        return said

    return {
        (f"{form}: {tail}" if form else tail): fact(form, tail)
        for form in forms
        for tail in facts_of(form)
    }


def _parts(name: str) -> tuple[str, str]:
    """`form: fact` taken apart; the form is what stands before the last colon."""
    if name.endswith(":"):
        return name[:-1], ""
    form, _, tail = name.rpartition(": ")
    return form, tail


def _once(facts: Facts) -> Iterator[tuple[str, str]]:
    """Names and JSON; a form of the model of which all is as in another one before is one line,
    a long fact that one before has too is `= FORM`."""
    forms: dict[str, dict[str, str]] = {}
    for name in sorted(facts):
        form, tail = _parts(name)
        forms.setdefault(form, {})[tail] = json.dumps(facts[name], ensure_ascii=False)
    wholes: dict[str, str] = {}
    first: dict[tuple[str, str], str] = {}
    for form, own in forms.items():
        whole = wholes.setdefault(json.dumps(own), form)
        if whole != form and form and whole:
            yield f"{form}:", json.dumps(f"{AS}{whole}", ensure_ascii=False)
            continue
        for tail, said in own.items():
            before = first.setdefault((tail, said), form) if len(said) > LONG and form else form
            if before != form:
                said = json.dumps(f"{AS}{before}", ensure_ascii=False)
            yield (f"{form}: {tail}" if form else tail), said


def text(cases: Mapping[str, Facts]) -> str:
    """JSON with sorted keys and a line for each fact: `read` gives back what is written."""
    blocks = []
    for case in sorted(cases):
        lines = [f"  {_key(name)}: {said}" for name, said in _once(cases[case])]
        blocks.append(f"{_key(case)}: {{\n" + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def _key(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


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
