"""The table and the picture of README.md, from committed results: `python -m benchmarks.readme`.

The table stands between two comments of README.md, the picture in docs/pictures, once for a light
page and once for a dark one. Nothing is measured: run it after a script has written its results.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks.results import FOLDER, REPOSITORY, Result, read

README = REPOSITORY / "README.md"
PICTURES = REPOSITORY / "docs" / "pictures"
BEGIN, END = "<!-- figures: python -m benchmarks.readme -->", "<!-- end of figures -->"
MINILM = "all-MiniLM-L6, target native"
PER_CHANNEL, OPENVINO = "quantize_dynamic per channel", "OpenVINO"


@cache
def result(name: str) -> Result:
    """A committed one."""
    return read(FOLDER / f"{name}.json")


def figure(name: str, section: str, what: str) -> float:
    """One figure of a result. Raises ValueError where it has none of that section and name."""
    for row in result(name).rows:
        if (row.section, row.what) == (section, what):
            return row.measured
    raise ValueError(f"benchmarks/results/{name}.json has no row {what!r} in {section!r}")


# --- the table ---


@dataclass(frozen=True)
class Line:
    """A kind of model: what it is, Octavo's speed with float's as 1, and the fastest peer's."""

    model: str
    speed: float
    peer: str
    peer_speed: float | None
    result: str


def lines() -> Iterator[Line]:
    """Of the README's table; each is of one thread."""
    torch = "models_torch_vnni"
    over_float = figure(torch, "all-MiniLM-L6: speed, 1 thread", f"{_OCTAVO} over float{_MEAN}")
    over_torch = figure(
        torch, "all-MiniLM-L6: speed, 1 thread", f"{_OCTAVO} over torch.ao per channel{_MEAN}"
    )
    yield Line(
        "Sentence embeddings (all-MiniLM-L6), PyTorch",
        *(over_float, "torch.ao per channel", over_float / over_torch, torch),
    )
    yield _onnx("Sentence embeddings (all-MiniLM-L6), ONNX", MINILM, OPENVINO)
    rnn = "2 layers, bidirectional, H 256, 50 steps, target native"
    yield _onnx("LSTM of two layers, ONNX", f"LSTM, {rnn}", "quantize_dynamic")
    gru = _onnx("GRU of two layers, ONNX", f"GRU, {rnn}")
    yield replace(gru, peer="ONNX Runtime has none")
    yield _onnx("OCR (nano-ocr: Conv and LSTM), ONNX", "nano-ocr, target native")
    yield _onnx("File types (magika: dense layers), ONNX", "magika, target native")


_OCTAVO, _MEAN = "octavo int8: speed", ", geometric mean"


def _onnx(model: str, part: str, peer: str = "") -> Line:
    name, section = "models_vnni", f"{part}: speed, 1 thread"
    over_float = figure(name, section, f"octavo native int8: speed over float{_MEAN}")
    if not peer:
        return Line(model, over_float, "not timed", None, name)
    over_peer = figure(name, section, f"octavo native int8: speed over {peer}{_MEAN}")
    title = peer if peer == OPENVINO else f"ONNX Runtime's {peer}"
    return Line(model, over_float, title, over_float / over_peer, name)


def table() -> str:
    """In Markdown, with the link of each line's result."""
    text = [
        "| model | float | Octavo, int8 | fastest int8 beside it | results |",
        "|---|--:|--:|---|---|",
    ]
    for line in lines():
        peer = line.peer if line.peer_speed is None else f"{line.peer_speed:.1f} ({line.peer})"
        link = f"[{line.result}](benchmarks/results/{line.result}.json)"
        text.append(f"| {line.model} | 1 | **{line.speed:.1f}** | {peer} | {link} |")
    return "\n".join(text)


def with_table(readme: str) -> str:
    """`readme` with the table of now. Raises ValueError where the two comments are missing."""
    before, found, rest = readme.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"README.md: the table stands between {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


# --- the picture ---


def points() -> dict[str, tuple[float, float]]:
    """Of all-MiniLM-L6 by name: error (1 - cosine of hidden states) and speed, float's being 1."""
    speeds, errors = f"{MINILM}: speed, 1 thread", f"{MINILM}: error, 1 - cosine of hidden states"

    def native(over: str, own: str = "int8") -> float:
        return figure("models_vnni", speeds, f"octavo native {own}: speed over {over}{_MEAN}")

    def error(of: str) -> float:
        return figure("models_vnni", errors, of)

    ours = native("float")
    accurate = native("octavo native int8", "int8-accurate")
    return {
        "Octavo int8": (error("octavo native int8"), ours),
        "Octavo int8-accurate": (error("octavo native int8-accurate"), ours * accurate),
        "OpenVINO, groups of 128": (error("OpenVINO, groups of 128"), ours / native(OPENVINO)),
        "ONNX Runtime, per channel": (error(PER_CHANNEL), ours / native(PER_CHANNEL)),
        "ONNX Runtime's default": _runtimes_default(),
    }


def _runtimes_default() -> tuple[float, float]:
    """It was timed beside target portable, in four of the five sizes."""
    speeds = "all-MiniLM-L6: speed, 1 thread"
    each = []
    for size in ("1x8", "1x32", "1x128", "8x128"):
        over_float = figure("models_vnni", speeds, f"{size}: speed over float")
        each.append(
            over_float / figure("models_vnni", speeds, f"{size}: speed over quantize_dynamic")
        )
    error = "quantize_dynamic: 1 - cosine of hidden states"
    return figure("models_vnni", "all-MiniLM-L6: accuracy", error), geometric_mean(each)


def draw(path: Path, ink: str, ours: str) -> None:
    """The picture as SVG, its figures in the description, `ink` for what is not ours."""
    import matplotlib as mpl
    from matplotlib import pyplot as plt

    found = points()
    style: dict[Any, Any] = {"svg.hashsalt": "octavo", "svg.fonttype": "none", "font.size": 11}
    coloured = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "axes.edgecolor")
    style |= dict.fromkeys(coloured, ink)
    with mpl.rc_context(style):
        drawn, axes = plt.subplots(figsize=(7.2, 3.4), layout="constrained")
        for name, (error, speed) in found.items():
            colour = ours if name.startswith("Octavo") else ink
            axes.plot(error, speed, "o", color=colour, markersize=9)
            offset = (9, 0) if name != "ONNX Runtime, per channel" else (-20, -17)
            weight = "bold" if name.startswith("Octavo") else "normal"
            axes.annotate(
                *(name, (error, speed), offset),
                textcoords="offset points", va="center", color=colour, weight=weight,
            )  # fmt: skip
        axes.axhline(1, color=ink, linewidth=0.8, linestyle=":")
        axes.annotate("float", (4e-4, 1), xytext=(0, 4), textcoords="offset points")
        axes.set(xscale="log", xlim=(4e-4, 0.4), ylim=(0, 4.4))
        axes.set(xlabel="error: 1 - cosine of hidden states (less is better)")
        axes.set(ylabel="speed, float = 1")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.spines[["top", "right"]].set_visible(False)
        said = {"Date": None, "Title": "Speed against error", "Description": json.dumps(found)}
        drawn.savefig(path, format="svg", transparent=True, metadata=said)
        plt.close(drawn)


def drawn_points(path: Path) -> Mapping[str, list[float]]:
    """What a picture says that it shows."""
    found = re.search(r"<dc:description>(.*?)</dc:description>", path.read_text(), re.S)
    if found is None:
        raise ValueError(f"{path}: no description; draw it again")
    said: dict[str, list[float]] = json.loads(found[1].replace("&quot;", '"'))
    return said


COLOURS = {"speed-light.svg": ("#57606a", "#4051b5"), "speed-dark.svg": ("#8b949e", "#9fa8ff")}
"""By picture: of what is not ours, and of what is."""


def main() -> int:
    """Writes README.md's table and both pictures."""
    README.write_text(with_table(README.read_text("utf-8")), "utf-8")
    for name, colours in COLOURS.items():
        draw(PICTURES / name, *colours)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
