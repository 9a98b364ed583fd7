"""`make demo`: quantizes all-MiniLM-L6 and shows what that gives, beside ONNX Runtime's quantizer.

First the commands as a user types them, then one table: size, latency on one thread (interleaved,
in a process of its own), error, and the accuracy on three labelled tasks. Takes about a minute.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from benchmarks import latency, results, variants
from benchmarks.latency import Setting
from benchmarks.variants import FLOAT, NATIVE, OCTAVO, QD, QD_CHANNEL
from benchmarks.zoo import minilm
from benchmarks.zoo.sessions import open_session
from octavo.measure.timing import Comparison

SHAPES = ((1, 32), (8, 128))
SHORT, LONG = map(latency.label, SHAPES)
MODEL, RESULT = "all-MiniLM-L6.onnx", "all-MiniLM-L6.int8.onnx"
NATIVE_RESULT = "all-MiniLM-L6.native.onnx"
LABELS = {
    FLOAT: "float",
    QD: "quantize_dynamic",
    QD_CHANNEL: "  per channel",
    OCTAVO: "Octavo",
    NATIVE: "  target native",
}


@dataclass(frozen=True)
class Outcome:
    """One model: bytes, 1 - cosine of its hidden states with the float model's, labelled scores."""

    bytes: int
    error: float
    scores: minilm.Scores


def quantize(folder: Path, console: Console) -> dict[str, Path]:
    """Octavo's files by its command line, the peers' by ONNX Runtime's function."""
    (folder / MODEL).symlink_to(minilm.onnx_path())
    _octavo(["quantize", MODEL, "-o", RESULT], folder, console)
    console.print()
    _octavo(["quantize", MODEL, "-o", NATIVE_RESULT, "--target", "native"], folder, console)
    peers = variants.every((FLOAT, QD, QD_CHANNEL), folder / MODEL, folder).files
    return {**peers, OCTAVO: folder / RESULT, NATIVE: folder / NATIVE_RESULT}


def _octavo(arguments: Sequence[str], folder: Path, console: Console) -> None:
    console.print(f"[bold]$ octavo {' '.join(arguments)}[/bold]\n")
    octavo = Path(sysconfig.get_path("scripts")) / "octavo"
    width = {**os.environ, "COLUMNS": str(console.width)}
    subprocess.run([octavo, *arguments], cwd=folder, check=True, env=width)


def evaluate(files: Mapping[str, Path]) -> dict[str, Outcome]:
    """Size, error and labelled accuracy of each file."""
    threads = len(os.sched_getaffinity(0))  # of no matter to the figures
    sessions = {name: open_session(path, threads) for name, path in files.items()}
    evaluation = minilm.Evaluation(minilm.embedder(sessions[FLOAT]))
    return {
        name: Outcome(
            bytes=files[name].stat().st_size,
            error=minilm.hidden_state_error(sessions[FLOAT], session),
            scores=evaluation.scores(minilm.embedder(session)),
        )
        for name, session in sessions.items()
    }


def table(outcomes: Mapping[str, Outcome], found: Mapping[str, Comparison]) -> Table:
    """One line for each model."""
    title = "all-MiniLM-L6 in ONNX Runtime, one thread"
    shown = Table(
        title=title, title_style="bold", box=SIMPLE, show_edge=False, padding=(0, 1, 0, 0)
    )
    shown.add_column("\n", no_wrap=True)
    heads = ("size\nMB", "1x32\nms", "\nspeed", "8x128\nms", "\nspeed", "error\n1 - cos")
    for head in (*heads, "Lee\nPearson", "WordSim\nSpearman", "TREC\naccuracy"):
        shown.add_column(head, justify="right", no_wrap=True)
    for name, outcome in outcomes.items():
        cells = [LABELS[name], f"{outcome.bytes / 1e6:.1f}"]
        for shape in (SHORT, LONG):
            cells.append(f"{found[shape][name].median * 1e3:.3g}")
            cells.append(f"{found[shape].speed(name, FLOAT).median:.2f}x")
        cells.append("" if name == FLOAT else f"{outcome.error:.4f}")
        cells += [f"{score:.3f}" for score in outcome.scores.by_task().values()]
        shown.add_row(*cells, style="bold" if name in (OCTAVO, NATIVE) else "")
    return shown


def conclusion(outcomes: Mapping[str, Outcome], found: Mapping[str, Comparison]) -> str:
    """What the table says, in a sentence made of its figures."""

    def speeds(of: str, over: str, digits: int) -> list[str]:
        return [f"{found[shape].speed(of, over).median:.{digits}f}" for shape in (SHORT, LONG)]

    exact, ours, native = outcomes[FLOAT], outcomes[OCTAVO], outcomes[NATIVE]
    short, long = speeds(OCTAVO, FLOAT, 1)
    pairs = zip(*(o.scores.by_task().values() for o in (ours, exact)), strict=True)
    return (
        f"Octavo's file is {exact.bytes / ours.bytes:.1f} times smaller than the float model and "
        f"{short} (1x32) and {long} (8x128) times as fast, which is "
        f"{' and '.join(speeds(OCTAVO, QD_CHANNEL, 2))} times the speed of quantize_dynamic per "
        f"channel; its error is {outcomes[QD].error / ours.error:.0f} times smaller than "
        f"quantize_dynamic's and {outcomes[QD_CHANNEL].error / ours.error:.1f} times smaller than "
        f"that of quantize_dynamic per channel, and no score is further than "
        f"{max(abs(a - b) for a, b in pairs):.4f} from the float model's. With Octavo's own "
        f"operators (target native) it is {' and '.join(speeds(NATIVE, FLOAT, 1))} times as fast "
        f"as the float model, and its error is {native.error:.4f}."
    )


def main() -> int:
    """Runs the demo."""
    console = Console(width=None if sys.stdout.isatty() else 100)
    with tempfile.TemporaryDirectory(prefix="octavo-demo-") as name:
        files = quantize(Path(name), console)
        results.say("measuring latency")
        found = latency.compare(files, latency.tokens(SHAPES), Setting(processes=4))
        results.say("measuring error and labelled accuracy")
        outcomes = evaluate(files)
    machine = results.machine()
    console.print()
    console.print(table(outcomes, found))
    console.print(f"{machine.cpu}: {' '.join(machine.instruction_sets)}\n", highlight=False)
    console.print(conclusion(outcomes, found), highlight=False)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
