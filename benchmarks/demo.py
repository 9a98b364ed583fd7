"""The demo itself: all-MiniLM-L6 quantized by the commands that a user types, timed and compared.

`make demo` (`benchmarks.demo_setup`) runs it in an environment of its own; where all that it needs
is installed, `python -m benchmarks.demo` does the same. Files stay in build/demo.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks import demo_tables, latency, results, runner, steps, torch_variants, variants
from benchmarks.latency import Setting
from benchmarks.runner import Job
from benchmarks.variants import FLOAT, NATIVE, OCTAVO, OPENVINO, QD, QD_CHANNEL
from benchmarks.zoo import minilm, minilm_graph
from benchmarks.zoo.sessions import Session, open_session
from octavo.measure.timing import Comparison

SHAPES = ((1, 32), (8, 128))
FOLDER = results.REPOSITORY / "build" / "demo"
MODEL, PORTABLE = "all-MiniLM-L6.onnx", "all-MiniLM-L6.int8.onnx"
NATIVE_FILE, PAGE = "all-MiniLM-L6.native.onnx", "report.html"
TORCH = (
    torch_variants.FLOAT,
    torch_variants.AO,
    torch_variants.AO_CHANNEL,
    torch_variants.OCTAVO,
)
STEPS = 7


@dataclass(frozen=True)
class Measured:
    """One kind of runner: its models' speeds by shape, errors, and scores of labelled texts."""

    speeds: Mapping[str, Comparison]
    outcomes: Mapping[str, demo_tables.Outcome]
    refused: Mapping[str, str]


class Steps:
    """Says which step begins, and how long it took when it ends."""

    def __init__(self, console: Console) -> None:
        self.console, self._number = console, 0

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        """`[2/7] quantizing for any ONNX Runtime`, and `2.4 s` behind it."""
        self._number += 1
        start = time.monotonic()
        self.console.print(f"\n[{self._number}/{STEPS}] {what}", style="bold", markup=False)
        yield
        self.console.print(f"took {time.monotonic() - start:.1f} s", style="dim")


def octavo(arguments: Sequence[str], console: Console, lines: slice = slice(None)) -> None:
    """A command as a user types it, in the folder of the demo; `lines` of what it says."""
    console.print(f"$ octavo {' '.join(arguments)}", style="bold", markup=False)
    command: list[str | Path] = [Path(sysconfig.get_path("scripts")) / "octavo", *arguments]
    width = {**os.environ, "COLUMNS": str(console.width)}
    done = subprocess.run(
        command, cwd=FOLDER, check=True, env=width, stdout=subprocess.PIPE, text=True
    )
    for line in done.stdout.splitlines()[lines]:
        console.print(line, markup=False, highlight=False)


def draw_model() -> None:
    """The float model, of its checkpoint."""
    with contextlib.redirect_stdout(io.StringIO()):
        if minilm_graph.main([str(FOLDER / MODEL)]):
            raise SystemExit(1)


def measure_onnx() -> Measured:
    """Files of Octavo and its peers, in ONNX Runtime and OpenVINO."""
    made = variants.every((FLOAT, QD, QD_CHANNEL, OPENVINO), FOLDER / MODEL, FOLDER)
    files = {**made.files, OCTAVO: FOLDER / PORTABLE, NATIVE: FOLDER / NATIVE_FILE}
    speeds = latency.compare(files, latency.tokens(SHAPES), Setting(processes=1, rounds=11))
    threads = len(os.sched_getaffinity(0))  # of no matter to the figures
    models = {name: _opened(path, threads) for name, path in files.items()}
    sizes = {name: _bytes(path) for name, path in files.items()}
    return Measured(speeds, demo_tables.evaluate(models, sizes), made.refused)


def _opened(path: Path, threads: int) -> Session:
    if path.suffix == ".xml":
        from benchmarks.peers_openvino import OpenVinoSession

        return OpenVinoSession(path)
    return open_session(path, threads)


def _bytes(path: Path) -> int:
    """Of a file; OpenVINO's weights lie beside it."""
    beside = path.with_suffix(".bin") if path.suffix == ".xml" else None
    return path.stat().st_size + (beside.stat().st_size if beside else 0)


def measure_torch() -> Measured:
    """Modules of PyTorch, eager, with one thread."""
    job = Job("parts_torch:minilm", cells=SHAPES, peers=TORCH, rounds=5)
    speeds = runner.pooled_run(job, 1)
    made, refused = torch_variants.every(TORCH, minilm.torch_model(minilm.SERVED))
    return Measured(speeds, demo_tables.evaluate(made, {}), refused)


def main(arguments: Sequence[str]) -> int:
    """Runs the demo."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demo", description=__doc__)
    parser.add_argument("--began", type=float, default=time.time(), help=argparse.SUPPRESS)
    began = parser.parse_args(arguments).began
    console = Console(width=None if sys.stdout.isatty() else 100)
    FOLDER.mkdir(parents=True, exist_ok=True)
    shown = Steps(console)
    with shown.step("the float model, as an ONNX file"):
        draw_model()
    with shown.step("quantized for any ONNX Runtime (target portable)"):
        octavo(["quantize", MODEL, "-o", PORTABLE, "--force"], console)
    with shown.step("quantized for Octavo's own operators (target native), with a page about it"):
        page = ["--report", PAGE, "--shape", "input_ids=1x128", "--threads", "1"]
        octavo(
            ["quantize", MODEL, "-o", NATIVE_FILE, "--force", "--target", "native", *page],
            console,
            slice(-6, None),
        )
    with shown.step("ONNX files timed with one thread, and their error: about 30 s"):
        files = measure_onnx()
    with shown.step("the same as PyTorch modules: about 30 s"):
        modules = measure_torch()
    with shown.step("the picture"):
        pictures = demo_tables.draw(files.speeds, files.outcomes, FOLDER)
    with shown.step("what was found"):
        for title, found in (("ONNX files", files), ("PyTorch modules, eager", modules)):
            console.print(demo_tables.table(title, found.outcomes, found.speeds))
            for name, why in found.refused.items():
                console.print(f"{name} was left out: {why}", markup=False, highlight=False)
        machine = results.machine()
        console.print(f"{machine.cpu}: {' '.join(machine.instruction_sets)}\n", highlight=False)
        console.print(demo_tables.conclusion(files.outcomes, files.speeds), highlight=False)
    console.print(closing(pictures, time.time() - began), markup=False, highlight=False)
    return 0


def closing(pictures: Sequence[Path], seconds: float) -> str:
    """Where everything is, and what to do next."""
    place = FOLDER.relative_to(results.REPOSITORY)
    names = [MODEL, PORTABLE, NATIVE_FILE, PAGE, *(path.name for path in pictures)]
    python = Path(sys.prefix).name
    return "\n".join(
        (
            f"\nDone after {steps.duration(seconds)}. Everything is in {place}:",
            *(f"  {place / name}" for name in names),
            "\nNext:",
            f"  open {place / PAGE} in a browser: what became of every layer",
            f"  . {python}/bin/activate, and try a model of yours:",
            "    octavo inspect model.onnx",
            "    octavo quantize model.onnx -o model.int8.onnx --report report.html",
            "  docs/choose.md says which way fits your model",
        )
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
