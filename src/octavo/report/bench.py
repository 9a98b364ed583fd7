"""A benchmark as text for people.

inputs ids=1x128, 1 thread
model        latency  spread  per s     load    memory     size
a.onnx       8.10 ms    3.7%    123  95.0 ms  181.0 MB  90.4 MB
a.int8.onnx  4.21 ms    2.4%    238  40.1 ms   61.0 MB  23.1 MB

  a.int8.onnx: faster, takes 0.520 of the time of a.onnx (0.510 to 0.530): 1.92x as fast
...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.text import Text

from octavo.recipe.benchmark import CONFIDENCE, SMALLEST, Benchmark, Pair, Timed, Verdict
from octavo.report import text as words
from octavo.report.groups import grouped
from octavo.report.text import clean, duration, size
from octavo.report.tuning_words import latency

_STYLES = {
    Verdict.FASTER: "bold green",
    Verdict.SLOWER: "bold yellow",
    Verdict.SAME: "",
    Verdict.NOISY: "bold red",
}


def bench_text(found: Benchmark) -> str:
    """The result as plain text."""
    return words.plain(list(_page(found)))


def print_bench(found: Benchmark, console: Console) -> None:
    """Prints the result, as tables on a terminal."""
    words.show(list(_page(found)), console)


def _page(found: Benchmark) -> Iterator[RenderableType]:
    short = short_names([one.name for one in found.models])
    for (shape, threads), models in grouped(found.models, lambda one: (one.shape, one.threads)):
        if heading := conditions(shape, threads):
            yield Text(heading, style="bold")
        yield _table(models, short)
        yield Text()
        for pair in found.rows:
            if (pair.shape, pair.threads) == (shape, threads):
                yield words.indented(_sentence(pair, short), 2, "")
        yield Text()
    if any(pair.verdict is Verdict.NOISY for pair in found.rows):
        yield Text(
            "Too noisy to tell: close what else runs on this machine, or give it more time "
            "(--seconds)."
        )
    if found.notes:
        yield Text("Notes", style="bold")
        yield from (words.indented(clean(note), 4, "-") for note in found.notes)
    yield Text(_footnote(found), style="dim")


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Each name without its folders, where no two are alike without them."""
    given = list(dict.fromkeys(names))
    last = [name.replace("\\", "/").rpartition("/")[2] or name for name in given]
    return dict(zip(given, last if len(set(last)) == len(given) else given, strict=True))


def conditions(shape: str, threads: int | None) -> str:
    """`inputs ids=1x128, 1 thread`, as far as they are known."""
    inputs = f"inputs {clean(shape.replace(',', ', '))}" if shape else ""
    count = "" if threads is None else words.count(threads, "thread")
    return ", ".join(filter(None, (inputs, count)))


def _table(models: Sequence[Timed], short: dict[str, str]) -> RenderableType:
    figures = {
        "latency": [latency(one.seconds) for one in models],
        "spread": [f"{one.spread:.1%}" for one in models],
        "per s": [rate(one.per_second) for one in models],
        "load": ["" if one.load_seconds is None else latency(one.load_seconds) for one in models],
        "memory": ["" if one.peak_memory is None else size(one.peak_memory) for one in models],
        "size": ["" if one.bytes is None else size(one.bytes) for one in models],
    }
    shown = {heading: texts for heading, texts in figures.items() if any(texts)}
    table = words.columns("model", *shown, right=[*shown])
    for i, one in enumerate(models):
        table.add_row(
            Text(clean(short[one.name]) or "(no name)"),
            *(Text(texts[i]) for texts in shown.values()),
        )
    return table


def rate(x: float) -> str:
    """Three significant digits: `8.31`, `123`, `12,300`."""
    return f"{x:.3g}" if x < 1000 else f"{float(f'{x:.3g}'):,.0f}"


def _sentence(pair: Pair, short: dict[str, str]) -> Text:
    a, b = (clean(short[name]) or "(no name)" for name in (pair.a, pair.b))
    interval = f"{times(pair.low)} to {times(pair.high)}"
    heading, rest = {
        Verdict.FASTER: (
            "faster",
            f", takes {times(pair.ratio)} of the time of {a} ({interval}): "
            f"{1 / pair.ratio:.2f}x as fast",
        ),
        Verdict.SLOWER: (
            "slower",
            f", takes {times(pair.ratio)} times as long as {a} ({interval})",
        ),
        Verdict.SAME: ("no difference seen", f" from {a} (within {pair.within:.1%}: {interval})"),
        Verdict.NOISY: ("too noisy to tell", f" from {a} ({interval})"),
    }[pair.verdict]
    return Text.assemble(f"{b}: ", (heading, _STYLES[pair.verdict]), rest)


def times(x: float) -> str:
    """`0.523`, `1.031`, `12.5`."""
    return f"{x:.3f}" if x < 10 else f"{x:.3g}"


def _footnote(found: Benchmark) -> str:
    return (
        f"Timed in turns for {duration(found.seconds)}. Latency is the median of a run, spread the "
        f"distance of its quartiles. Intervals hold {CONFIDENCE:.0%} of the time; differences "
        f"below {SMALLEST:.1%} are not called so."
    )
