"""A diagnosis as text."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, RenderableType
from rich.text import Text

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
    if d.model is not None:
        yield Text(clean(d.model), style="bold")
        ours = [(k, clean(v)) for k, v in sorted(d.metadata.items()) if k.startswith("octavo.")]
        yield words.facts(ours) if ours else Text("  not written by Octavo: it says nothing")
        yield Text()
    for finding in d.findings:
        style = "bold red" if finding.level == "problem" else "bold yellow"
        yield Text.assemble((finding.level, style), f": {clean(finding.message)}")
        yield words.indented(f"to mend it: {clean(finding.fix)}")
    if not d.findings:
        yield Text("nothing is missing", style="bold green")


def _state(p: Package) -> str:
    needs = f" (needs {p.needs})" if p.needs else ""
    if p.installed is not None:
        return p.installed + needs
    extra = f", optional: pip install 'octavo[{p.name}]'" if not p.required else ""
    return f"not installed{needs}{extra}"
