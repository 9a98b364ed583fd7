"""What a machine has for running int8 models, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from octavo.core import versions
from octavo.results.page import Page, Part, Result, facts, indented, line
from octavo.results.words import clean


@dataclass(frozen=True)
class Package:
    """One distribution: what is installed (None: nothing), what is needed, and whether it is.

    `install` is the command that installs it, `purpose` what an optional one is for.
    """

    name: str
    installed: str | None
    needs: str
    required: bool
    install: str = ""
    purpose: str = ""


@dataclass(frozen=True)
class Kernels:
    """What ONNX Runtime's int8 matrix products use on this processor.

    `exact` is whether int8 weights times uint8 activations never saturate.
    """

    name: str
    exact: bool
    advice: str


@dataclass(frozen=True)
class KernelTable:
    """Octavo's own kernels for one instruction set: whether they run here, and who has them.

    `one_row` and `many_rows` tell how fast linear layers are with them, over those in use here, for
    one row and for 32 rows and more; None where nobody timed it.
    """

    name: str
    state: str
    processors: str
    one_row: float | None = None
    many_rows: float | None = None


@dataclass(frozen=True)
class Finding:
    """Something to do: a `problem` stops work, a `warning` does not; `fix` is what mends it."""

    level: str
    message: str
    fix: str


@dataclass(frozen=True)
class Diagnosis(Result):
    """What the doctor saw.

    `model` is the file that was looked at, if any, `about` what it is on this machine, in a few
    sentences, and `metadata` its own words, but for the long ones.
    """

    python: str
    platform: str
    octavo: str
    packages: tuple[Package, ...]
    cpu_features: tuple[str, ...]
    kernels: Kernels
    findings: tuple[Finding, ...]
    model: str | None = None
    about: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    tables: tuple[KernelTable, ...] = ()
    version: int = versions.PAGE

    @property
    def ok(self) -> bool:
        """Tell whether nothing that is needed is missing."""
        return not any(f.level == "problem" for f in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**super().to_dict(), "ok": self.ok}

    def page(self, verbose: bool = False) -> Page:
        """Yield what a file is on this machine, or without a file the machine, and the findings."""
        if self.model is None:
            yield from _machine(self)
        else:
            yield line(clean(self.model), style="bold")
            yield from (indented(clean(sentence)) for sentence in self.about)
        for finding in self.findings:
            style = "bold red" if finding.level == "problem" else "bold yellow"
            yield line((finding.level, style), f": {clean(finding.message)}")
            yield indented(f"to mend it: {clean(finding.fix)}")
        if not self.findings:
            optional = self.model is None and any(p.installed is None for p in self.packages)
            said = "nothing that Octavo itself needs is missing"
            yield line(said if optional else "nothing is missing", style="bold green")


def _machine(d: Diagnosis) -> Iterator[Part]:
    yield facts(
        [
            ("octavo", d.octavo),
            ("python", f"{d.python} on {d.platform}"),
            *((p.name, _installed(p)) for p in d.packages if p.required),
        ]
    )
    yield line("")
    yield line("Optional packages", style="bold")
    yield facts([(p.name, _installed(p)) for p in d.packages if not p.required])
    yield line("")
    yield facts(
        [
            ("instruction sets", " ".join(d.cpu_features) or "unknown"),
            ("ONNX Runtime's int8", f"{d.kernels.name}: {d.kernels.advice}"),
            *((f"Octavo's {t.name}", _table(t)) for t in d.tables),
        ]
    )
    yield line("")


def _table(table: KernelTable) -> str:
    said = f"{table.state} ({table.processors})"
    if table.state == "in use" or not table.many_rows or not table.one_row:
        return said
    many, one = times(table.many_rows), times(table.one_row)
    return f"{said}: linear layers {many} for many rows, {one} for one, beside those in use"


def times(ratio: float) -> str:
    """Say `1.7 times as fast`, or that there is no difference worth a figure."""
    same = abs(ratio - 1) < _SAME
    return "about as fast" if same else f"{ratio:.2g} times as fast"


_SAME = 0.15


def _installed(p: Package) -> str:
    if p.required:
        needs = f" (needs {p.needs})" if p.needs else ""
        return f"{p.installed or 'not installed'}{needs}"
    if p.installed is not None:
        return f"{p.installed}, for {p.purpose}"
    return f"not installed, for {p.purpose}: {p.install}"
