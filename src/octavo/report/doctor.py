"""A diagnosis as text."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.text import Text

from octavo.errors import pip_install
from octavo.measure.doctor import Diagnosis, Package
from octavo.report import text as words
from octavo.report.text import clean


def diagnosis_text(diagnosis: Diagnosis) -> str:
    """The diagnosis as plain text."""
    return words.plain(list(_page(diagnosis)))


def print_diagnosis(diagnosis: Diagnosis, console: Console) -> None:
    """Prints the diagnosis."""
    words.show(list(_page(diagnosis)), console)


def _page(d: Diagnosis) -> Iterator[RenderableType]:
    """Of a file what it is on this machine; without one, the machine."""
    if d.model is None:
        yield from _machine(d)
    else:
        yield Text(clean(d.model), style="bold")
        yield from (words.indented(clean(sentence)) for sentence in d.about)
    for finding in d.findings:
        style = "bold red" if finding.level == "problem" else "bold yellow"
        yield Text.assemble((finding.level, style), f": {clean(finding.message)}")
        yield words.indented(f"to mend it: {clean(finding.fix)}")
    if not d.findings:
        yield Text("nothing is missing", style="bold green")


def _machine(d: Diagnosis) -> Iterator[RenderableType]:
    yield words.facts(
        [
            ("octavo", d.octavo),
            ("python", f"{d.python} on {d.platform}"),
            *((p.name, _state(p)) for p in d.packages),
        ]
    )
    yield Text()
    yield words.facts(
        [
            ("instruction sets", " ".join(d.cpu_features) or "unknown"),
            ("int8 kernels", f"{d.kernels.name}: {d.kernels.advice}"),
        ]
    )
    yield Text()


def _state(p: Package) -> str:
    needs = f" (needs {p.needs})" if p.needs else ""
    if p.installed is not None:
        return p.installed + needs
    extra = "" if p.required else f", optional: {pip_install(p.name)}"
    return f"not installed{needs}{extra}"
