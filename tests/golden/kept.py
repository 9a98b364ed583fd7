"""The record: one file a group, one line a form of a model; and how two records differ."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from tests.golden.facts import Fact, Facts, line, numbers

FOLDER = Path(__file__).parent / "kept"
RELATIVE = 1e-5
PACKAGES = ("numpy", "onnx", "onnx-ir", "onnxruntime", "torch", "transformers")
Forms = Mapping[str, Facts]
"""Facts by `CASE: FORM`; by `CASE` those that are of no form."""


class Difference(NamedTuple):
    """One fact that is not what it was; None where there is none."""

    form: str
    fact: str
    kept: Fact | None
    now: Fact | None

    def __str__(self) -> str:
        kept, now = (_json(f) if f is not None else "(nothing)" for f in (self.kept, self.now))
        return f"{self.form}\n  {self.fact}\n    kept {kept}\n    now  {now}"


def forms(cases: Mapping[str, Facts]) -> dict[str, Facts]:
    """Return the facts of cases by their forms."""
    found: dict[str, Facts] = {}
    for case, facts in cases.items():
        for name, fact in facts.items():
            form, _, tail = name.rpartition(": ")
            found.setdefault(f"{case}: {form}" if form else case, {})[tail] = fact
    return found


def case_of(form: str) -> str:
    """Return the case of a key of `forms`."""
    return form.partition(": ")[0]


def lines(cases: Mapping[str, Facts]) -> dict[str, Facts]:
    """Return the record's line of each form of the cases."""
    return {form: line(facts) for form, facts in forms(cases).items()}


def differences(group: str, kept: Forms, now: Forms) -> Iterator[Difference]:
    """Yield each fact that the two records of a group have otherwise."""
    for form in sorted({*kept, *now}):
        before, after = kept.get(form, {}), now.get(form, {})
        for fact in sorted({*before, *after}):
            a, b = before.get(fact), after.get(fact)
            if not same(a, b):
                yield Difference(f"{group}/{form}", fact, a, b)


def same(a: Fact | None, b: Fact | None) -> bool:
    """Whether two facts are the same; numbers with a tolerance, for the last of them (the norm of
    all) and the size of the largest."""
    if not numbers(a) or not numbers(b):
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


def read(group: str, folder: Path | None = None) -> dict[str, Facts]:
    """A group's facts by form, of the record or of a folder."""
    path = (folder or FOLDER) / f"{group}.json"
    found: dict[str, Facts] = json.loads(path.read_text()) if path.exists() else {}
    return found


def write(group: str, found: Forms, folder: Path | None = None) -> None:
    """Rewrites a group's file: sorted, each form on a line."""
    folder = folder or FOLDER
    folder.mkdir(exist_ok=True, parents=True)
    rows = [f"{_json(form)}: {_json(found[form])}" for form in sorted(found)]
    (folder / f"{group}.json").write_text("{\n" + ",\n".join(rows) + "\n}\n")


def _json(data: object) -> str:
    return json.dumps(data, ensure_ascii=False, sort_keys=True)


def about() -> dict[str, str]:
    """Where this runs, as far as it may show in values."""
    found = {"machine": platform.machine(), "cpu": _cpu()}
    return found | {name: version(name) for name in PACKAGES}


def _cpu() -> str:
    try:
        rows = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    said = {k.strip(): v.strip() for k, _, v in (row.partition(":") for row in rows)}
    wanted = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")
    flags = (said.get("flags") or said.get("Features") or "").split()
    return f"{said.get('model name', '?')}: {' '.join(f for f in wanted if f in flags)}"
