"""What the demo found: a table, a picture and a few sentences, all made of its figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.box import SIMPLE
from rich.table import Table

from benchmarks import torch_variants
from benchmarks.docs.drawing import Point, fitted, speed_error
from benchmarks.variants import FLOAT, NATIVE, OCTAVO, OPENVINO, QD, QD_CHANNEL
from benchmarks.zoo import minilm
from benchmarks.zoo.sessions import Array, Float32
from octavo.measure.timing import Comparison
from octavo.report.plots.style import Theme

LABELS = {
    FLOAT: "float",
    QD: "ONNX Runtime",
    QD_CHANNEL: "ONNX Runtime per channel",
    OPENVINO: "OpenVINO",
    OCTAVO: "Octavo",
    NATIVE: "Octavo native",
    torch_variants.AO: "torch.ao",
    torch_variants.AO_CHANNEL: "torch.ao per channel",
}
OURS = (OCTAVO, NATIVE)


@dataclass(frozen=True)
class Outcome:
    """One model: bytes (0 unknown), 1 - cosine of its hidden states with the float model's, and
    the correlation of its similarities with those that people gave to pairs of documents (Lee)."""

    bytes: int
    error: float
    lee: float


def evaluate(models: Mapping[str, minilm.Model], sizes: Mapping[str, int]) -> dict[str, Outcome]:
    """Of each model beside the float one: one run over Lee's 50 documents each."""
    feed = minilm.tokenize(minilm.lee_documents())
    real = feed["attention_mask"] == 1
    states = {name: minilm.hidden_states(model, feed) for name, model in models.items()}
    exact = states[FLOAT][real].astype(np.float64).ravel()
    found = {}
    for name, hidden in states.items():
        rows = hidden[real].astype(np.float64).ravel()
        cosine = float(exact @ rows / (np.linalg.norm(exact) * np.linalg.norm(rows)))
        found[name] = Outcome(sizes.get(name, 0), 1 - cosine, _like_people(hidden, real))
    return found


def _like_people(hidden: Array, real: Array) -> float:
    """The correlation of Lee, from hidden states."""
    pooled = (hidden * real[..., np.newaxis]).sum(axis=1)
    vectors: Float32 = (pooled / np.linalg.norm(pooled, axis=1, keepdims=True)).astype(np.float32)

    def embed(texts: Sequence[str]) -> Float32:
        return vectors

    return minilm.Evaluation(embed).lee(embed)


def speed(found: Mapping[str, Comparison], of: str, over: str = FLOAT) -> float:
    """How many times as fast one model is as another: the geometric mean over the shapes."""
    ratios = [comparison.speed(of, over).median for comparison in found.values()]
    return math.prod(ratios) ** (1 / len(ratios))


def table(title: str, outcomes: Mapping[str, Outcome], found: Mapping[str, Comparison]) -> Table:
    """One line for each model."""
    shown = Table(
        title=f"{title}, one thread",
        title_style="bold",
        title_justify="left",
        box=SIMPLE,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    shown.add_column("\n", no_wrap=True)
    heads = ["size\nMB"] * any(outcome.bytes for outcome in outcomes.values())
    heads += [head for shape in found for head in (f"{shape}\nms", "\nspeed")]
    for head in (*heads, "error\n1 - cos", "like people\n(Lee)"):
        shown.add_column(head, justify="right", no_wrap=True)
    for name, outcome in outcomes.items():
        cells = [f"{outcome.bytes / 1e6:.1f}"] if outcome.bytes else []
        for comparison in found.values():
            cells.append(f"{comparison[name].median * 1e3:.3g}")
            cells.append(f"{comparison.speed(name, FLOAT).median:.2f}x")
        cells.append("" if name == FLOAT else f"{outcome.error:.4f}")
        cells.append(f"{outcome.lee:.3f}")
        shown.add_row(LABELS[name], *cells, style="bold" if name in OURS else "")
    return shown


def draw(
    found: Mapping[str, Comparison], outcomes: Mapping[str, Outcome], folder: Path
) -> list[Path]:
    """Speed against error in `folder`, as an SVG and a PNG."""
    points = [
        Point(LABELS[name], speed(found, name), outcome.error, name in OURS)
        for name, outcome in outcomes.items()
        if name != FLOAT
    ]
    plot = speed_error("all-MiniLM-L6: speed against error, 1 thread", *fitted(points))
    svg, png = (folder / f"speed-and-error.{ending}" for ending in ("svg", "png"))
    svg.write_text(plot.svg(Theme.LIGHT), "utf-8")
    png.write_bytes(plot.png())
    return [svg, png]


def conclusion(outcomes: Mapping[str, Outcome], found: Mapping[str, Comparison]) -> str:
    """What the tables say, in sentences made of their figures."""
    exact, portable, native = outcomes[FLOAT], outcomes[OCTAVO], outcomes[NATIVE]
    peers = [name for name in outcomes if name not in (FLOAT, *OURS)]
    fastest = max(peers, key=lambda name: speed(found, name))
    closest = min(peers, key=lambda name: outcomes[name].error)
    shapes = " and ".join(latency_words(shape) for shape in found)
    moved = abs(native.lee - exact.lee)
    return (
        f"Speeds are the mean of {shapes}. The native file is "
        f"{exact.bytes / native.bytes:.1f} times smaller than the float model and "
        f"{speed(found, NATIVE):.1f} times as fast. Its error is {native.error:.4f}, and its "
        f"similarities of documents correlate with people's as the float model's do, to "
        f"{moved:.3f}. The portable file, for any ONNX Runtime, is {speed(found, OCTAVO):.1f} "
        f"times as fast, with an error of {portable.error:.4f}. The fastest of the others, "
        f"{LABELS[fastest]}, is {speed(found, fastest):.1f} times as fast as float. The closest to "
        f"float, {LABELS[closest]}, has an error of {outcomes[closest].error:.4f}."
    )


def latency_words(label: str) -> str:
    """`1 text of 32 tokens`, of `latency.label`."""
    batch, length = label.split("x")
    return f"{batch} text{'s' * (batch != '1')} of {length} tokens"
