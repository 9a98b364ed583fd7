"""Real models through ONNX Runtime: what `python -m benchmarks.models --onnx` measures.

Speed, error, labelled accuracy and size of Octavo's files of all-MiniLM-L6, silero-vad and magika
beside the peers'; target native's are in `native_models`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from benchmarks import latency, native_models, rows, runner, variants
from benchmarks.latency import SHAPES, Setting
from benchmarks.results import Row, say
from benchmarks.variants import FLOAT, OCTAVO, PRESETS, QD, QD_CHANNEL
from benchmarks.zoo import magika, minilm, silero
from benchmarks.zoo.sessions import open_session
from octavo.measure.timing import Comparison

LEAST_SPEED = 0.97  # of quantize_dynamic per channel
MOST_ERROR = 0.003  # 1 - cosine of hidden states
SCORE_MARGIN = 0.005
MOST_BYTES = 23.5e6
LEAST_AUC = 0.990
LEAST_AGREEMENT, LEAST_SHARE = 0.995, 0.90


@dataclass(frozen=True)
class Effort:
    """How much is measured: child processes a figure, exporters (1 or 2)."""

    quick: bool
    processes: int
    exporters: int

    @property
    def informing(self) -> int:
        """Child processes for rows that nothing is asked of."""
        return 1 if self.quick else min(3, self.processes)


def minilm_rows(folder: Path, effort: Effort) -> Iterator[Row]:
    """all-MiniLM-L6 from both exporters; the figures asked for are of the TorchScript export."""
    exporters: tuple[minilm.Exporter, ...] = ("torchscript", "dynamo")
    for exporter in exporters[: effort.exporters]:
        asked = exporter == "torchscript"
        where = "all-MiniLM-L6" if asked else "all-MiniLM-L6, dynamo export"
        say(f"{where}: quantizing")
        made = variants.every((FLOAT, QD, QD_CHANNEL, OCTAVO), minilm.onnx_path(exporter), folder)
        yield from accuracy_rows(made.files, where, asked)
        section = f"{where}: size"
        for name, path in made.files.items():
            most = MOST_BYTES / 1e6 if asked and name == OCTAVO else None
            size = path.stat().st_size / 1e6
            yield Row(f"{name}: file", size, "MB", at_most=most, section=section)
        yield rows.table_row(made.reports[OCTAVO], "embedding table", asked, section)
        yield from speed_rows(made.files, where, asked, effort)


def accuracy_rows(files: Mapping[str, Path], where: str, asked: bool) -> Iterator[Row]:
    """Error of the hidden states and the three labelled tasks."""
    say(f"{where}: error and labelled accuracy")
    section = f"{where}: accuracy"
    sessions = {name: open_session(path) for name, path in files.items()}
    most, what = {OCTAVO: MOST_ERROR} if asked else {}, ": 1 - cosine of hidden states"
    peers = (QD, QD_CHANNEL, OCTAVO)
    yield from rows.error_rows(sessions[FLOAT], sessions, peers, what, most, {}, section)
    evaluation = minilm.Evaluation(minilm.embedder(sessions[FLOAT]))
    scores = {n: evaluation.scores(minilm.embedder(s)).by_task() for n, s in sessions.items()}
    bounded = OCTAVO if asked else ""
    yield from rows.task_rows(scores, tuple(files), bounded, SCORE_MARGIN, {}, section)


def speed_rows(files: Mapping[str, Path], where: str, asked: bool, effort: Effort) -> Iterator[Row]:
    """Latency with and without AMX on one thread, and on two as far as there are two cores."""
    for setting in latency.settings(False, effort.processes):
        if setting.threads > 1 and (not asked or effort.quick):
            continue
        if not asked or setting.threads > 1:
            setting = replace(setting, processes=effort.informing)  # noqa: PLW2901
        section = f"{where}: speed, {setting.words}"
        say(section)
        for shape, found in latency.compare(files, latency.tokens(SHAPES), setting).items():
            for peer in (QD_CHANNEL, QD, FLOAT):
                least = (
                    LEAST_SPEED if asked and peer == QD_CHANNEL and setting.threads == 1 else None
                )
                yield _speed(found, OCTAVO, peer, f"{shape}: speed over {peer}", least, section)


def _speed(
    found: Comparison, of: str, over: str, what: str, least: float | None, section: str
) -> Row:
    speed, note = found.speed(of, over), rows.note_of(found, of, over)
    return Row(what, speed.median, "x", at_least=least, section=section, note=note)


def preset_rows(folder: Path, effort: Effort) -> Iterator[Row]:
    """What the other presets and formats do to all-MiniLM-L6: for information."""
    say("all-MiniLM-L6: other presets")
    model, section = minilm.onnx_path(), "all-MiniLM-L6: Octavo's other presets"
    made = variants.every((FLOAT, *PRESETS), model, folder)
    for name, why in made.refused.items():
        yield Row(name, math.nan, section=section, note=why)
    exact = open_session(model)
    files = {name: path for name, path in made.files.items() if name != FLOAT}
    for name, path in files.items():
        error = minilm.hidden_state_error(exact, open_session(path))
        yield Row(f"{name}: 1 - cosine of hidden states", error, section=section)
        yield Row(f"{name}: file", path.stat().st_size / 1e6, "MB", section=section)
    feeds = latency.tokens(((1, 32), (8, 128)))
    found = latency.compare(made.files, feeds, Setting(processes=effort.informing))
    for shape, compared in found.items():
        for name in files:
            yield _speed(compared, name, FLOAT, f"{name}: {shape}, speed over float", None, section)


def silero_rows(folder: Path) -> Iterator[Row]:
    """silero-vad in the three forms in which an LSTM's weights occur."""
    for form, path in silero.forms().items():
        say(f"silero-vad, {form}")
        out = folder / f"silero-{form}.onnx"
        report = variants.octavo_quantize(path, out)
        exact, found = (silero.scores(open_session(file)) for file in (path, out))
        what = f"{form}: area under the ROC curve over frames"
        note = f"float {exact.auc:.4f}; accuracy {found.accuracy:.4f}, float {exact.accuracy:.4f}"
        yield Row(what, found.auc, at_least=LEAST_AUC, section="silero-vad", note=note)
        lstms = [o for o in report.layers if o.layer.op == "LSTM"]
        what, count = f"{form}: LSTM layers quantized", sum(o.quantized for o in lstms)
        least = max(1, len(lstms))
        yield Row(what, count, f"of {len(lstms)}", at_least=least, section="silero-vad")


def magika_rows(folder: Path) -> Iterator[Row]:
    """magika: agreement with the float model, and the share of its MatMul weights in int8."""
    say("magika")
    section, out = "magika", folder / "magika.onnx"
    report = variants.octavo_quantize(magika.model_path(), out)
    exact, found = open_session(magika.model_path()), open_session(out)
    agreement = magika.top1_agreement(exact, found)
    note = f"{len(magika.known_files())} files; accuracy {magika.accuracy(found):.4f}, float "
    note += f"{magika.accuracy(exact):.4f}"
    what = "top-1 agreement with float"
    yield Row(what, agreement, at_least=LEAST_AGREEMENT, section=section, note=note)
    products = [o for o in report.layers if o.layer.op == "MatMul" and o.layer.weights]
    held = sum(o.bytes_before for o in products if o.quantized)
    what = "share of the MatMul weights' bytes held as int8"
    share = held / sum(o.bytes_before for o in products)
    yield Row(what, share, at_least=LEAST_SHARE, section=section)


def sections(folder: Path, effort: Effort) -> dict[str, runner.Rows]:
    """Of the three models in target portable, then of target native; files are made in `folder`."""
    return {
        "all-MiniLM-L6": partial(minilm_rows, folder, effort),
        "all-MiniLM-L6: other presets": partial(preset_rows, folder, effort),
        "silero-vad": partial(silero_rows, folder),
        "magika": partial(magika_rows, folder),
        **native_models.sections(folder, effort.quick, effort.processes),
    }
