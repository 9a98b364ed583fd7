"""Real models through ONNX Runtime: what `python -m benchmarks.models --onnx` measures.

Speed, error, labelled accuracy and size of Octavo's files of all-MiniLM-L6, silero-vad and magika
beside the peers'; target native's are in `native_models`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks import held, latency, native_models, results, sections, variants
from benchmarks.results import Row, say
from benchmarks.timing import Comparison
from benchmarks.variants import FLOAT, OCTAVO, QD, QD_CHANNEL
from benchmarks.zoo import magika, minilm, silero
from benchmarks.zoo.sessions import open_session
from octavo.recipe import Report

LEAST_SPEED = 0.97  # of quantize_dynamic per channel
MOST_ERROR = 0.003  # 1 - cosine of hidden states
SCORE_MARGIN = 0.005
MOST_BYTES = 23.5e6
LEAST_AUC = 0.990
LEAST_AGREEMENT, LEAST_SHARE = 0.995, 0.90
NAMES = {"lee": "Lee, Pearson", "wordsim": "WordSim353, Spearman", "trec": "TREC probe, accuracy"}


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
        say(f"all-MiniLM-L6, {exporter}: quantizing")
        files, report = variants.four(minilm.onnx_path(exporter), folder)
        where = "all-MiniLM-L6" if asked else "all-MiniLM-L6, dynamo export"
        yield from accuracy_rows(files, where, asked)
        yield from size_rows(files, report, where, asked)
        yield from speed_rows(files, where, asked, effort)


def accuracy_rows(files: Mapping[str, Path], where: str, asked: bool) -> Iterator[Row]:
    """Error of the hidden states and the three labelled tasks."""
    say(f"{where}: error and labelled accuracy")
    section = f"{where}: accuracy"
    sessions = {name: open_session(path) for name, path in files.items()}
    for name in (QD, QD_CHANNEL, OCTAVO):
        error = minilm.hidden_state_error(sessions[FLOAT], sessions[name])
        most = MOST_ERROR if asked and name == OCTAVO else None
        yield Row(f"{name}: 1 - cosine of hidden states", error, "", at_most=most, section=section)
    evaluation = minilm.Evaluation(minilm.embedder(sessions[FLOAT]))
    scores = {n: evaluation.scores(minilm.embedder(s)).to_dict() for n, s in sessions.items()}
    for task, words in NAMES.items():
        for name, found in scores.items():
            exact = scores[FLOAT][task]
            bounded = asked and name == OCTAVO
            yield Row(
                f"{words}: {name}",
                found[task],
                at_least=exact - SCORE_MARGIN if bounded else None,
                at_most=exact + SCORE_MARGIN if bounded else None,
                section=section,
                note="" if name == FLOAT else f"{found[task] - exact:+.4f} from float",
            )


def size_rows(files: Mapping[str, Path], report: Report, where: str, asked: bool) -> Iterator[Row]:
    """Sizes of the files, and how the embedding table is held."""
    section = f"{where}: size"
    for name, path in files.items():
        most = MOST_BYTES / 1e6 if asked and name == OCTAVO else None
        yield Row(f"{name}: file", path.stat().st_size / 1e6, "MB", at_most=most, section=section)
    yield held.table_row(report, "embedding table", asked, section)


def speed_rows(files: Mapping[str, Path], where: str, asked: bool, effort: Effort) -> Iterator[Row]:
    """Latency with and without AMX on one thread, and on two as far as there are two cores."""
    machine = results.machine()
    modes = [True, False] if "amxint8" in machine.instruction_sets else [True]
    for threads in (1, 2) if asked and machine.cores > 1 and not effort.quick else (1,):
        for amx in modes:
            words = f"{threads} thread{'s' * (threads > 1)}"
            words += "" if len(modes) == 1 else ", AMX" if amx else ", AMX refused (VNNI only)"
            say(f"{where}: latency, {words}")
            processes = effort.processes if asked and threads == 1 else effort.informing
            found = latency.measure(files, threads=threads, processes=processes, amx=amx)
            section = f"{where}: speed, {words}"
            for shape, comparison in found.items():
                yield from _speeds(comparison, latency.label(shape), section, asked, threads)


def _speeds(
    found: Comparison, shape: str, section: str, asked: bool, threads: int
) -> Iterator[Row]:
    for peer in (QD_CHANNEL, QD, FLOAT):
        speed = found.speed(OCTAVO, peer)
        bounded = asked and peer == QD_CHANNEL and threads == 1
        yield Row(
            f"{shape}: speed over {peer}",
            speed.median,
            "x",
            at_least=LEAST_SPEED if bounded else None,
            section=section,
            note=f"{found[OCTAVO].median * 1e3:.2f} ms to {found[peer].median * 1e3:.2f} ms; "
            f"quartiles {speed.low:.3f} to {speed.high:.3f}",
        )


def preset_rows(folder: Path, effort: Effort) -> Iterator[Row]:
    """What the other presets and formats do to all-MiniLM-L6: for information."""
    model = minilm.onnx_path()
    say("all-MiniLM-L6: other presets")
    files, refused = variants.presets(model, folder)
    section = "all-MiniLM-L6: Octavo's other presets"
    for name, reason in refused.items():
        yield Row(name, float("nan"), section=section, note=reason)
    exact = open_session(model)
    for name, path in files.items():
        error = minilm.hidden_state_error(exact, open_session(path))
        yield Row(f"{name}: 1 - cosine of hidden states", error, section=section)
        yield Row(f"{name}: file", path.stat().st_size / 1e6, "MB", section=section)
    shapes = ((1, 32), (8, 128))
    found = latency.measure({FLOAT: model, **files}, shapes, processes=effort.informing)
    for shape, comparison in found.items():
        for name in files:
            speed = comparison.speed(name, FLOAT)
            what = f"{name}: {latency.label(shape)}, speed over float"
            note = f"quartiles {speed.low:.3f} to {speed.high:.3f}"
            yield Row(what, speed.median, "x", section=section, note=note)


def silero_rows(folder: Path) -> Iterator[Row]:
    """silero-vad in the three forms in which an LSTM's weights occur."""
    section = "silero-vad"
    for form, path in silero.forms().items():
        say(f"silero-vad, {form}")
        out = folder / f"silero-{form}.onnx"
        report = variants.octavo_quantize(path, out)
        exact, found = (silero.scores(open_session(file)) for file in (path, out))
        lstms = [o for o in report.layers if o.layer.op == "LSTM"]
        yield Row(
            f"{form}: area under the ROC curve over frames",
            found.auc,
            at_least=LEAST_AUC,
            section=section,
            note=f"float {exact.auc:.4f}; accuracy {found.accuracy:.4f}, float "
            f"{exact.accuracy:.4f}",
        )
        yield Row(
            f"{form}: LSTM layers quantized",
            sum(o.quantized for o in lstms),
            f"of {len(lstms)}",
            at_least=max(1, len(lstms)),
            section=section,
        )


def magika_rows(folder: Path) -> Iterator[Row]:
    """magika: agreement with the float model, and the share of its MatMul weights in int8."""
    say("magika")
    section, out = "magika", folder / "magika.onnx"
    report = variants.octavo_quantize(magika.model_path(), out)
    exact, found = open_session(magika.model_path()), open_session(out)
    yield Row(
        "top-1 agreement with float",
        magika.top1_agreement(exact, found),
        at_least=LEAST_AGREEMENT,
        section=section,
        note=f"{len(magika.known_files())} files; accuracy {magika.accuracy(found):.4f}, float "
        f"{magika.accuracy(exact):.4f}",
    )
    products = [o for o in report.layers if o.layer.op == "MatMul" and o.layer.weights]
    held = sum(o.bytes_before for o in products if o.quantized)
    yield Row(
        "share of the MatMul weights' bytes held as int8",
        held / sum(o.bytes_before for o in products),
        at_least=LEAST_SHARE,
        section=section,
    )


def all_rows(effort: Effort) -> list[Row]:
    """Of the three models in target portable, then of target native."""
    with tempfile.TemporaryDirectory(prefix="octavo-models-") as name:
        folder = Path(name)
        rows = [*silero_rows(folder), *magika_rows(folder)]
        rows = [*minilm_rows(folder, effort), *preset_rows(folder, effort), *rows]
        native = native_models.sections(folder, effort.quick, effort.processes)
        return [*rows, *sections.every(native)]
