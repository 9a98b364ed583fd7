"""Pictures of README and the performance page, of the committed results.

They are `docs/pictures/NAME-light.svg` and `NAME-dark.svg`. Each is a `Drawn` of `drawn()`.
Sections are found by their form: another number of threads or kernel table needs no change here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from benchmarks.docs.drawing import Drawn, Point, Row, bars, dots, scatter, speed_error
from benchmarks.docs.figures import measured_values, names, result
from benchmarks.docs.machines import caption, processor
from benchmarks.docs.summary import SUMMARY_RESULT, points
from benchmarks.docs.threads import thread_counts
from benchmarks.families_torch import BFLOAT16
from benchmarks.results import REPOSITORY
from benchmarks.torch_variants import AO_CHANNEL, FLOAT, OCTAVO
from benchmarks.variants import NATIVE, NATIVE_ACCURATE, OPENVINO, QD, QD_CHANNEL
from benchmarks.zoo.families import FAMILIES
from octavo.report.plots.style import Theme, darkened

PICTURES = REPOSITORY / "docs" / "pictures"
ORT = "ONNX Runtime, per channel"
_MINILM = "all-MiniLM-L6"
_FASTER = "speed, float = 1: further right is faster"
_DECODERS = {
    "octavo int4": "Octavo, bits of the file",
    "octavo int8": "Octavo, 8 bits",
    "torch bfloat16": "PyTorch, bfloat16",
}


def picture(name: str) -> Iterator[str]:
    """The picture in Markdown, with where its figures come from; links as in `figures`."""
    if name not in drawn():
        raise LookupError(f"there is no plot {name!r}; there are {', '.join(drawn())}")
    found = drawn()[name]
    yield "<picture>"
    yield f'  <source media="(prefers-color-scheme: dark)" srcset="/docs/pictures/{name}-dark.svg">'
    yield f'  <img alt="{found.plot.title}" src="/docs/pictures/{name}-light.svg">'
    yield from ("</picture>", "")
    yield caption(found.results, compares_tables=found.compares_tables)


def pictures(wanted: Iterable[str] | None = None) -> dict[Path, str]:
    """Every file, or those of the plots that are `wanted`, with its text."""
    files = {}
    for name in drawn() if wanted is None else wanted:
        light = drawn()[name].plot.svg(Theme.LIGHT)
        files[PICTURES / f"{name}-light.svg"] = light
        files[PICTURES / f"{name}-dark.svg"] = darkened(light)
    return files


@cache
def drawn() -> dict[str, Drawn]:
    """All plots by name."""
    return {
        "speed": _speed(),
        "families-torch": _families_torch(),
        "families-token": _families_token(),
        "families-onnx": _families_onnx(),
        "lengths": _lengths(),
        "threads": _threads(),
        "thread-counts": thread_counts(),
        "size-error": _size_error(),
        "decoders": _decoders(),
        "kernel-tables": _kernel_tables(),
    }


def _speed() -> Drawn:
    """README's: all-MiniLM-L6 in ONNX Runtime and OpenVINO."""
    title = f"{_MINILM} as an ONNX file: speed against error, 1 thread"
    return Drawn(speed_error(title, points(), (0.8, 4.1), (0.15, 2e-4)), (SUMMARY_RESULT,))


def _families_torch() -> Drawn:
    """Octavo and torch.ao over float."""
    title = "PyTorch modules by family, 1 thread"
    return _families(title, "PyTorch, 1 thread", (AO_CHANNEL,))


def _families_token() -> Drawn:
    title = "Decoders by family: one token after a cache of 128, 1 thread"
    section = "one token after a cache, 1 thread"
    return _families(title, section, (AO_CHANNEL, BFLOAT16))


def _families(title: str, section: str, peers: tuple[str, ...]) -> Drawn:
    found, lines = measured_values("families_vnni"), []
    for family in FAMILIES:
        over = f"{OCTAVO}: speed over "
        at = {p: found.get((f"{family}: {section}", over + p), math.nan) for p in (FLOAT, *peers)}
        values = {"Octavo, int8": at[FLOAT], **{p: at[FLOAT] / at[p] for p in peers}}
        if math.isfinite(at[FLOAT]):
            lines.append(Row(family, {p: x for p, x in values.items() if math.isfinite(x)}))
    lines.sort(key=lambda row: -row.values["Octavo, int8"])
    return Drawn(dots(title, _FASTER, lines), ("families_vnni",))


def _families_onnx() -> Drawn:
    """How many times as fast as each peer, the export of the fewest gains."""
    found, lines = measured_values("families_vnni"), []
    for family in FAMILIES:
        section, values = f"{family}: ONNX, target native: speed, 1 thread", {}
        for label, peer in (("over OpenVINO", OPENVINO), ("over ONNX Runtime", QD_CHANNEL)):
            speeds = [
                value
                for (where, what), value in found.items()
                if where == section and what.endswith(f": over {peer}")
            ]
            if speeds:
                values[label] = min(speeds)
        if values:
            lines.append(Row(family, values))
    lines.sort(key=lambda row: -max(row.values.values()))
    title = "ONNX files by family: target native over int8 of peers, 1 thread"
    across = "Octavo's speed, the peer's = 1 (of several exports the one of the least gain)"
    return Drawn(dots(title, across, lines, peers_only=True), ("families_vnni",))


def _lengths() -> Drawn:
    """By batch and length, in ONNX Runtime and in PyTorch."""
    lines = []
    for kind, name, section, ours, peers in (
        (
            *("ONNX", "models_vnni", f"{_MINILM}, target native: speed, 1 thread", NATIVE),
            {"OpenVINO": OPENVINO, ORT: QD_CHANNEL},
        ),
        (
            *("PyTorch", "models_torch_vnni", f"{_MINILM}: speed, 1 thread", OCTAVO),
            {"torch.ao": AO_CHANNEL},
        ),
    ):
        found = measured_values(name)
        for shape in _shapes(found, section, f"{ours}: speed over float, "):
            speed = found[section, f"{ours}: speed over float, {shape}"]
            values = {"Octavo": speed}
            for peer, what in peers.items():
                over = found.get((section, f"{ours}: speed over {what}, {shape}"))
                values |= {peer: speed / over} if over else {}
            lines.append(Row(f"{kind}, {shape}", values))
    title = f"{_MINILM} by batch x length, 1 thread"
    return Drawn(bars(title, _FASTER, lines), ("models_vnni", "models_torch_vnni"))


def _shapes(found: Mapping[tuple[str, str], float], section: str, start: str) -> list[str]:
    """The sizes that were timed, the least work first."""
    shapes = [
        what.removeprefix(start)
        for where, what in found
        if where == section and re.fullmatch(re.escape(start) + r"\d+x\d+", what)
    ]
    return sorted(shapes, key=lambda shape: math.prod(map(int, shape.split("x"))))


def _threads() -> Drawn:
    """Octavo over float with each number of threads that some result has."""
    form = re.compile(r"(.+?)(?:, target native)?: speed, (\d+) threads?(?:, AMX)?")
    lines: dict[tuple[str, str], dict[int, float]] = {}
    kinds = {"models_vnni": NATIVE, "models_torch_vnni": OCTAVO}
    for name, ours in kinds.items():
        for (section, what), value in measured_values(name).items():
            match = form.fullmatch(section)
            if match and what == f"{ours}: speed over float, geometric mean":
                kind = "PyTorch" if ours == OCTAVO else "ONNX"
                model = match[1].partition(", 2 layers")[0]
                lines.setdefault((model, kind), {})[int(match[2])] = value
    rows = [
        Row(f"{model}, {kind}", {f"{n} thread{'s' * (n > 1)}": x for n, x in sorted(at.items())})
        for (model, kind), at in lines.items()
    ]
    title = "Speed over float by number of threads, both with as many"
    return Drawn(bars(title, _FASTER, rows), tuple(kinds))


def _size_error() -> Drawn:
    """all-MiniLM-L6 as ONNX files of 8 bits."""
    found, score = measured_values("models_vnni"), "1 - cosine of hidden states"
    whole, presets = f"{_MINILM}: size", f"{_MINILM}: Octavo's other presets"
    accuracy = f"{_MINILM}: accuracy"
    size, error = (f"{_MINILM}, target native: {s}" for s in ("size", f"error, {score}"))
    places = (
        ("native, int8", True, (size, NATIVE), (error, NATIVE)),
        ("native, int8-accurate", True, (size, NATIVE_ACCURATE), (error, NATIVE_ACCURATE)),
        ("portable, int8", True, (whole, OCTAVO), (accuracy, f"{OCTAVO}: {score}")),
        ("portable, int8-block", True, (presets, "int8-block"), (presets, f"int8-block: {score}")),
        (ORT, False, (size, QD_CHANNEL), (error, QD_CHANNEL)),
        ("ONNX Runtime, per tensor", False, (whole, QD), (accuracy, f"{QD}: {score}")),
        ("OpenVINO, groups of 128", False, (size, OPENVINO), (error, "OpenVINO, groups of 128")),
    )
    points = [
        Point(
            f"Octavo, {name}" if ours else name,
            found[where, f"{file}: file"],
            found[how],
            ours,
            "left" if name.startswith("OpenVINO") else "right",
        )
        for name, ours, (where, file), how in places
    ]
    half, loss = found[presets, "float16: file"], found[presets, f"float16: {score}"]
    others = f"float {found[size, 'float: file']:.0f}, float16 {half:.0f} with error {loss:.1g}"
    plot = scatter(
        f"{_MINILM} as an ONNX file: size against error",
        f"megabytes: further left is smaller (not shown: {others})",
        "error, 1 - cosine of hidden states:\nhigher up is better",
        points,
        (0, 50),
        (0.2, 2e-4),
    )
    return Drawn(plot, ("models_vnni",))


def _decoders() -> Drawn:
    """Tokens a second of every decoder that was timed with one thread."""
    lines = []
    for section in dict.fromkeys(section for section, _ in measured_values("decoders_vnni")):
        match = re.fullmatch(r"(.+): decoding, 1 thread(, in PyTorch)?", section)
        if match:
            values = {
                _DECODERS.get(what, what): value
                for (where, what), value in measured_values("decoders_vnni").items()
                if where == section and ": speed" not in what
            }
            name = match[1].replace("Llama of 1.1 billion parameters", "Llama 1.1B")
            lines.append(Row(name + (match[2] or ""), values))
    title = "Language models: tokens a second, 1 thread"
    return Drawn(bars(title, "tokens a second: longer is faster", lines, None), ("decoders_vnni",))


def _kernel_tables() -> Drawn:
    """Each instruction set over AVX2, for every processor that was measured."""
    found = tuple(name for name in names() if name.startswith("kernel_tables"))
    lines = []
    for name in found:
        means: dict[str, dict[str, float]] = {}
        for (section, what), value in measured_values(name).items():
            match = re.fullmatch(r"(\w+), (M .+), geometric mean of \d+", what)
            if match and "by recipe" not in section:
                means.setdefault(match[1], {})[match[2].replace("M", "rows")] = value
        cpu = processor(result(name).machine)
        lines += [Row(f"{table}\n{cpu}", values) for table, values in means.items()]
    title = "Linear layers, int8: Octavo's kernels by instruction set, 1 thread"
    return Drawn(bars(title, "speed, Octavo's AVX2 = 1: longer is faster", lines), found, True)
