"""A report as text for people: what was quantized, what was left float and why, at what cost.

model.onnx -> model.int8.onnx
recipe int8, target portable, cpu vnni, format qoperator

Quantized: 37 of 50 layers, 89.4 MB -> 22.5 MB
layers  op       before    after  worst SQNR  scheme, and its worst layer
    36  MatMul  42.5 MB  10.7 MB     38.1 dB  int8 per channel, activations per row
                                              /pooler/dense/MatMul
...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from octavo.recipe.reasons import by_reason
from octavo.recipe.report import LayerOutcome, Report, Verification
from octavo.report import text as words
from octavo.report.check_words import check_failed_to_see, check_runs, check_status
from octavo.report.groups import grouped
from octavo.report.names import in_series, shortened
from octavo.report.text import clean, count, decibels, number, size


def report_text(report: Report, verbose: bool = False) -> str:
    """The report as plain text; `verbose` names every layer."""
    return words.plain(list(_page(report, verbose)))


def print_report(report: Report, console: Console, verbose: bool = False) -> None:
    """Prints the report, as tables on a terminal; `verbose` names every layer."""
    words.show(list(_page(report, verbose)), console)


def _page(report: Report, verbose: bool) -> Iterator[RenderableType]:
    if report.gains_nothing:
        yield _heading(_little_gained(report), "bold yellow")
    recipe = clean(report.recipe.get("name", "custom"))
    names = [clean(name) for name in (report.source, report.output) if name]
    yield Text(" -> ".join(names), style="bold")
    settings = {"target": report.target, "cpu": report.cpu, "format": report.quant_format}
    if report.target == "native":
        del settings["cpu"]  # its kernels are exact on all of them
    said = [f"{key} {value}" for key, value in settings.items() if value]
    yield Text(", ".join([f"recipe {recipe}", *said]))
    yield Text()
    yield from _quantized(report, verbose)
    yield from _left_float(report, verbose)
    yield from _done_differently(report, verbose)
    if report.notes:
        yield _heading("Notes")
        yield from (words.indented(clean(note), 4, "-") for note in report.notes)
        yield Text()
    yield words.facts(_facts(report))


def _heading(text: str, style: str = "bold") -> Text:
    return Text(text, style=style)


def _quantized(report: Report, verbose: bool) -> Iterator[RenderableType]:
    done = report.quantized
    title = f"Quantized: {len(done):,} of {count(len(report.layers), 'layer')}"
    if not done:
        yield _heading(title, "bold yellow")
        yield Text()
        return
    yield _heading(f"{title}, {_before_after(done)}", "bold green")
    if not verbose:
        yield _group_table(done)
        yield Text()
        return
    for (op, scheme), members in grouped(done, lambda o: (o.layer.op, o.scheme)):
        yield words.indented(
            f"{clean(op)}, {clean(scheme)}: {count(len(members), 'layer')}, "
            f"{_before_after(members)}"
        )
        yield _layer_table(members)
        yield Text()


def _group_table(done: Sequence[LayerOutcome]) -> Table:
    figures = ("layers", "before", "after", "worst SQNR")
    last = "scheme, and its worst layer"
    table = words.columns("layers", "op", "before", "after", "worst SQNR", last, right=figures)
    short = dict(zip(_names(done), shortened(_names(done)), strict=True))
    for (op, scheme), members in grouped(done, lambda o: (o.layer.op, o.scheme)):
        rated = [(m.sqnr_db, short[m.layer.name]) for m in members if m.sqnr_db is not None]
        worst, name = min(rated, default=(None, ""))
        table.add_row(
            Text(f"{len(members):,}"),
            Text(clean(op)),
            Text(size(sum(m.bytes_before for m in members))),
            Text(size(sum(m.bytes_after for m in members))),
            Text(decibels(worst)),
            Text.assemble(clean(scheme), (f"\n{clean(name)}" if name else "", "dim")),
        )
    return table


def _names(outcomes: Sequence[LayerOutcome]) -> list[str]:
    return [o.layer.name for o in outcomes]


def _layer_table(members: Sequence[LayerOutcome]) -> Table:
    table = words.columns(
        "  layer", "weights", "before", "after", "SQNR", right=("before", "after", "SQNR")
    )
    for m in members:
        shared = m.layer.shares_with and not m.bytes_before
        table.add_row(
            words.indented(clean(m.layer.name)),
            Text(words.shapes(m.layer.weights)),
            Text("shared" if shared else size(m.bytes_before)),
            Text("shared" if shared else size(m.bytes_after)),
            Text(decibels(m.sqnr_db)),
        )
    return table


def _left_float(report: Report, verbose: bool) -> Iterator[RenderableType]:
    left = report.left_float
    if not left:
        return
    total = sum(o.bytes_before for o in left)
    yield _heading(
        f"Left float: {len(left):,} of {count(len(report.layers), 'layer')}, {size(total)}"
    )
    for reason, places in by_reason([o.reason for o in left]):
        members = [left[i] for i in places]
        ops = words.counts(o.layer.op for o in members)
        held = sum(o.bytes_before for o in members)
        what = f"{ops}, {size(held)}" if held else ops
        yield words.indented(f"{what}: {clean(reason) or 'no reason given'}", 4, "-")
        yield _named(members, verbose)
    yield Text()


def _named(members: Sequence[LayerOutcome], verbose: bool) -> RenderableType:
    """The layers' names: all, or a few, blocks together."""
    names = [o.layer.name for o in members]
    if not verbose:
        names = shortened([one.name for one in in_series(names, [o.layer.op for o in members])])
    return words.indented(Text(words.names(names, None if verbose else 3), style="dim"), 6)


def _done_differently(report: Report, verbose: bool) -> Iterator[RenderableType]:
    noted = [(note, o) for o in report.layers for note in o.notes]
    if not noted:
        return
    yield _heading("Done differently from what the recipe asks")
    for note, places in by_reason([note for note, _ in noted]):
        members = [noted[i][1] for i in places]
        yield words.indented(f"{count(len(members), 'layer')}: {clean(note)}", 4, "-")
        yield _named(members, verbose)
    yield Text()


def _little_gained(report: Report) -> str:
    """What the first line says where the result is hardly smaller, or larger."""
    before, after = report.model_bytes_before, report.model_bytes_after
    what = "the model" if report.target == "torch" else "the file"
    sizes = f"{size(before)} -> {size(after)}"
    if after >= before:
        grown = "is as large as before" if after == before else "grows"
        return f"Nothing gained in size: {what} {grown}, {sizes}"
    return f"Little gained in size: {what} is {100 * report.saved:.1f}% smaller, {sizes}"


def _facts(report: Report) -> Iterator[tuple[str, str]]:
    before, after = report.model_bytes_before, report.model_bytes_after
    what = "Tensors" if report.target == "torch" else "File"
    yield what, f"{size(before)} -> {size(after)} ({words.ratio(before, after)})"
    yield "Check", _verification(report.verification)
    if report.min_onnxruntime:
        needed = f"ONNX Runtime {clean(report.min_onnxruntime)} or newer (opset {report.opset})"
        yield "Needs", needed
    if report.target == "native":
        yield "Opens with", "octavo.onnx.session, which registers Octavo's operators"
    elif report.cpu == "vnni" and any("activations" in o.scheme for o in report.quantized):
        yield "Made for", "VNNI, AMX or NEON; other x86 processors need octavo.onnx.session"
    yield "Took", words.duration(report.seconds)


def _verification(v: Verification) -> str:
    if v.status == "skipped":
        return f"skipped: {clean(v.detail) or 'nothing was loaded or compared'}"
    if v.error is None:
        return check_failed_to_see(v)
    bound = f" (at most {number(v.max_error)} allowed)" if v.max_error is not None else ""
    cosine = f", 1 - cosine {number(v.cosine_error)}" if v.cosine_error is not None else ""
    error = f"error against the float model {number(v.error)}{bound}{cosine}"
    return f"{check_status(v)}: {error}; {check_runs(v)}"


def _before_after(outcomes: Sequence[LayerOutcome]) -> str:
    before = sum(o.bytes_before for o in outcomes)
    after = sum(o.bytes_after for o in outcomes)
    return f"{size(before)} -> {size(after)}"
