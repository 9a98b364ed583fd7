"""A report as a page: what was quantized, what was left float and why, at what cost.

model.onnx -> model.int8.onnx
recipe int8, target portable, cpu vnni, format qoperator

Quantized: 37 of 50 layers, 89.4 MB -> 22.5 MB
layers  op       before    after  worst SQNR  scheme, and its worst layer
    36  MatMul  42.5 MB  10.7 MB     38.1 dB  int8 per channel, activations per row
                                              /pooler/dense/MatMul
...
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from octavo.results import words
from octavo.results.advice import advice
from octavo.results.evidence import Evidence
from octavo.results.judgement import judge
from octavo.results.names import by_reason, grouped, in_series, shortened
from octavo.results.page import Part, Table, columns, facts, indented, line, noted
from octavo.results.words import clean, count, decibels, number, padding, size

if TYPE_CHECKING:
    from octavo.results.report import Conversion, LayerOutcome, Report, Verification

_ASK = "pass --inputs (check_inputs)"
_FEW_BITS = 7.9  # up to which the page tells them: int8 has 8 and its scales
DIFFERENTLY = "Done differently from what the recipe asks"


def report_page(report: Report, verbose: bool, evidence: Evidence | None = None) -> Iterator[Part]:
    """Lay out the report, with the verdict that `evidence` gives; `verbose` names every layer."""
    if report.gains_nothing:
        yield line(_little_gained(report), style="bold yellow")
    names = [clean(name) for name in (report.source, report.output) if name]
    yield line(" -> ".join(names), style="bold")
    settings = {"target": report.target, "cpu": report.cpu, "format": report.quant_format}
    if report.target == "native":
        del settings["cpu"]  # its kernels are exact on all of them
    recipe = f"recipe {clean(report.recipe.get('name', 'custom'))}"
    yield line(", ".join([recipe, *(f"{key} {value}" for key, value in settings.items() if value)]))
    yield line("")
    yield from _quantized(report.layers, verbose)
    yield from _left_float(report.layers, verbose)
    yield from _done_differently(report.layers, verbose, DIFFERENTLY)
    if report.notes:
        yield from noted([clean(note) for note in report.notes])
        yield line("")
    yield facts([*_facts(report), *_verdict(report, evidence or Evidence())])


def bits_per_weight(quantized: Sequence[LayerOutcome]) -> float | None:
    """Return the bits per weight of these layers, with scales and zero points.

    A shared weight counts once. None where none of the layers is quantized.
    """
    held = [o for o in quantized if o.bytes_after]
    weights = sum(math.prod(shape) for o in held for _, shape in o.layer.weights)
    return 8.0 * sum(o.bytes_after for o in held) / weights if weights else None


def _quantized(layers: Sequence[LayerOutcome], verbose: bool) -> Iterator[Part]:
    done = [o for o in layers if o.quantized]
    title = f"Quantized: {len(done):,} of {count(len(layers), 'layer')}"
    if not done:
        yield line(title, style="bold yellow")
        yield line("")
        return
    bits = bits_per_weight(done)
    few = "" if bits is None or bits > _FEW_BITS else f", {number(bits)} bits a weight"
    yield line(f"{title}, {_before_after(done)}{few}", style="bold green")
    if not verbose:
        yield _group_table(done)
        yield line("")
        return
    for (op, scheme), members in grouped(done, lambda o: (o.layer.op, o.scheme)):
        held = f"{count(len(members), 'layer')}, {_before_after(members)}"
        yield indented(f"{clean(op)}, {clean(scheme)}: {held}")
        yield _layer_table(members)
        yield line("")


def _group_table(done: Sequence[LayerOutcome]) -> Table:
    figures = ("layers", "before", "after", "worst SQNR")
    last = "scheme, and its worst layer"
    table = columns("layers", "op", "before", "after", "worst SQNR", last, right=figures)
    names = [o.layer.name for o in done]
    short = dict(zip(names, shortened(names), strict=True))
    for (op, scheme), members in grouped(done, lambda o: (o.layer.op, o.scheme)):
        rated = [(m.sqnr_db, short[m.layer.name]) for m in members if m.sqnr_db is not None]
        worst, name = min(rated, default=(None, ""))
        table.add_row(
            f"{len(members):,}",
            clean(op),
            size(sum(m.bytes_before for m in members)),
            size(sum(m.bytes_after for m in members)),
            decibels(worst),
            line(clean(scheme), (f"\n{clean(name)}" if name else "", "dim")),
        )
    return table


def _layer_table(members: Sequence[LayerOutcome]) -> Table:
    figures = ("before", "after", "SQNR")
    table = columns("  layer", "weights", *figures, right=figures)
    for m in members:
        shared = m.layer.shares_with and not m.bytes_before
        table.add_row(
            indented(clean(m.layer.name)),
            words.shapes(m.layer.weights),
            "shared" if shared else size(m.bytes_before),
            "shared" if shared else size(m.bytes_after),
            decibels(m.sqnr_db),
        )
    return table


def _left_float(layers: Sequence[LayerOutcome], verbose: bool) -> Iterator[Part]:
    left = [o for o in layers if not o.quantized]
    if not left:
        return
    total = size(sum(o.bytes_before for o in left))
    title = f"Left float: {len(left):,} of {count(len(layers), 'layer')}, {total}"
    yield line(title, style="bold")
    for reason, places in by_reason([o.reason for o in left]):
        members = [left[i] for i in places]
        ops = words.counts(o.layer.op for o in members)
        held = sum(o.bytes_before for o in members)
        what = f"{ops}, {size(held)}" if held else ops
        yield indented(f"{what}: {clean(reason) or 'no reason given'}", 4, "-")
        yield _named(members, verbose)
    yield line("")


def _named(members: Sequence[LayerOutcome], verbose: bool) -> Part:
    """List the layers' names: all if `verbose`, else a few, blocks together."""
    names = [o.layer.name for o in members]
    if not verbose:
        names = shortened([one.name for one in in_series(names, [o.layer.op for o in members])])
    return indented(line(words.names(names, None if verbose else 3), style="dim"), 6)


def _done_differently(layers: Sequence[LayerOutcome], verbose: bool, title: str) -> Iterator[Part]:
    said = [(note, o) for o in layers for note in o.notes]
    if not said:
        return
    yield line(title, style="bold")
    for note, places in by_reason([note for note, _ in said]):
        members = [said[i][1] for i in places]
        yield indented(f"{count(len(members), 'layer')}: {clean(note)}", 4, "-")
        yield _named(members, verbose)
    yield line("")


def _little_gained(report: Report) -> str:
    """Say in the page's first line that the result is hardly smaller, or larger."""
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
    yield from needs(report)
    yield "Took", words.duration(report.seconds)


def _verdict(report: Report, evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Yield the verdict of the report's page for browsers, and the first thing to do."""
    sizes = report.model_bytes_before, report.model_bytes_after
    judged = judge(report, evidence, sizes)
    yield "Verdict", judged.in_short
    for one in advice(report, evidence, judged)[:1]:
        yield "Next", f"{clean(one.what)}\n{clean(one.command)}"


def needs(report: Report) -> Iterator[tuple[str, str]]:
    """Yield what runs the model: a label and a text each."""
    if report.min_onnxruntime:
        needed = f"ONNX Runtime {clean(report.min_onnxruntime)} or newer (opset {report.opset})"
        yield "Needs", needed
    if report.target == "native" or any("activations" in o.scheme for o in report.quantized):
        yield from words.made_for(report.target, report.cpu)


def _verification(v: Verification) -> str:
    if v.status == "skipped":
        return f"skipped: {clean(v.detail) or 'nothing was loaded or compared'}"
    if v.error is None:
        return _not_compared(v)
    bound = f" (at most {number(v.max_error)} allowed)" if v.max_error is not None else ""
    cosine = words.apart(v.cosine_error, v.error)
    far = number(v.error) if math.isfinite(v.error) else "not finite"
    error = f"error against the float model {far}{bound}{cosine and f', {cosine}'}"
    return f"{_status(v)}: {error}; {_runs(v)}"


def _not_compared(v: Verification) -> str:
    why = f"; {clean(v.detail)}" if v.detail else ""
    ran = f"; {_runs(v)}" if v.runs else ""
    if v.inputs == "made up":
        return f"could not be checked on made-up inputs: {_ASK}{why}{ran}"
    return f"could not be checked on the inputs given{why}{ran}"


def _status(v: Verification) -> str:
    """Say that a model was compared in part, and where; else the verification's status."""
    if v.status != "compared":
        return clean(v.status)
    return f"compared in part, {clean(v.detail)}" if v.detail else "compared in part"


def _runs(v: Verification) -> str:
    """Say on what the model was compared; of a check that passed, what else there is to say."""
    shapes = f": {clean(v.ran_on)}" if v.ran_on else ""
    detail = f"; {clean(v.detail)}" if v.detail and v.status == "passed" else ""
    return f"{count(v.runs, 'run')} on inputs {clean(v.inputs)}{shapes}{padding(v.padding)}{detail}"


def _before_after(outcomes: Sequence[LayerOutcome]) -> str:
    before = sum(o.bytes_before for o in outcomes)
    after = sum(o.bytes_after for o in outcomes)
    return f"{size(before)} -> {size(after)}"


def conversion_page(done: Conversion, verbose: bool) -> Iterator[Part]:
    """Lay out a conversion between targets: what was converted, what differs, how it compares."""
    yield line(f"{clean(done.source)} -> {clean(done.output)}", style="bold")
    yield line("target native" if done.target == "native" else f"target portable, cpu {done.cpu}")
    yield line("")
    counted = ", ".join(f"{n} {op}" for op, n in sorted(done.layers.items()))
    yield line(f"Converted: {counted or 'no layers; the file says another target'}")
    if done.outcomes:
        yield line("")
        yield from _quantized(done.outcomes, verbose)
        yield from _left_float(done.outcomes, verbose)
        yield from _done_differently(done.outcomes, verbose, "Otherwise than in the file")
    yield from noted([clean(note) for note in done.notes])
    yield line("")
    yield facts(
        [
            ("Model", f"{size(done.model_bytes_before)} -> {size(done.model_bytes_after)}"),
            ("Needs", f"ONNX Runtime {done.min_onnxruntime}, opset {done.opset}"),
            *(words.made_for(done.target, done.cpu) if done.layers else ()),
            ("Check", _compared_files(done)),
            ("Took", words.duration(done.seconds)),
        ]
    )


def _compared_files(done: Conversion) -> str:
    v = done.verification
    if v.status == "skipped":
        return "skipped"
    if v.error is None:
        return _not_compared(v)
    bound = f"(at most {number(v.max_error or 0.0)} allowed)"
    if not done.against_weights:
        return f"{_status(v)}: distance of the two files {number(v.error)} {bound}; {_runs(v)}"
    error = f"error against the float numbers of its weights {number(v.error)} {bound}"
    before = done.error_before
    was = "" if before is None else f", the file as it was {number(before)}"
    return f"{_status(v)}: {error}{was}; {_runs(v)}"
