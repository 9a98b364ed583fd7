"""What to do next with a quantized model: the commands that follow from what was found."""

from __future__ import annotations

import glob
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from octavo.results.benchmark import Verdict
from octavo.results.comparison import Comparison
from octavo.results.evidence import FLOAT, QUANTIZED, Evidence
from octavo.results.judgement import Finding, Judgement, Ship
from octavo.results.report import Report
from octavo.results.words import clean, size

MOST = 3
"""How many are given: who gets ten does none."""
_MUCH = 0.1  # of the quantized model's bytes, which layers left float hold
_OTHER_DATA = "data.npz"


@dataclass(frozen=True)
class Advice:
    """What to do, why, and the command or the Python line that does it."""

    what: str
    command: str


@dataclass(frozen=True)
class _Names:
    """The models as a command line has them."""

    floating: str
    quantized: str
    target: str

    @property
    def torch(self) -> bool:
        return self.target == "torch"

    @property
    def factory(self) -> bool:
        """Whether the float model is `module:factory`, which commands take."""
        return self.torch and ":" in self.floating

    @property
    def folder(self) -> bool:
        """Whether they are checkpoints, of which reports name the folder alone."""
        return not self.factory and not self.quantized.endswith(".onnx")


def advice(report: Report | None, evidence: Evidence, judged: Judgement) -> tuple[Advice, ...]:
    """The most urgent first, at most `MOST`."""
    names = _names(report, evidence.comparison)
    if names is None:
        return ()
    return tuple(_every(names, report, evidence, judged))[:MOST]


def _names(report: Report | None, found: Comparison | None) -> _Names | None:
    if report is not None:
        return _Names(report.source, report.output, report.target)
    if found is not None:
        return _Names(found.float_model, found.quantized_model, found.target)
    return None


def _every(
    names: _Names, report: Report | None, evidence: Evidence, judged: Judgement
) -> Iterator[Advice]:
    floating, quantized = _quoted(names.floating), _quoted(names.quantized)
    quantize = f"octavo quantize {floating} -o {quantized}"
    quantize += " --target native" if names.target == "native" else ""
    if judged.found(Finding.NOTHING_QUANTIZED):
        yield Advice("See why each layer stays float.", f"octavo inspect {floating} --verbose")
        return
    if names.folder:
        yield _serving(names)
        return
    found = evidence.comparison
    if judged.found(Finding.MADE_UP, Finding.NOT_COMPARED, Finding.UNREACHED):
        page = _quoted(str(PurePath(names.quantized).with_suffix(".html")))
        yield Advice(
            "Compare it on inputs of yours, a hundred are enough: one entry for each input.",
            f"octavo report {floating} {quantized} --html {page} --inputs {_OTHER_DATA}",
        )
    if found is not None and found.suspect is not None:
        layer = _quoted(glob.escape(found.suspect.name))
        yield Advice("Leave the layer that errs most float.", f"{quantize} --exclude {layer}")
    if judged.found(Finding.ABOVE_BOUND, Finding.NOT_CLOSE, Finding.NOT_FINITE):
        yield Advice(
            "Take a recipe with less error, at some speed.", f"{quantize} --recipe int8-accurate"
        )
    if judged.ship is not Ship.NOT:
        yield from _about_speed(names, evidence, f"octavo bench {floating} {quantized} --threads 1")
    left = 0 if report is None else sum(o.bytes_before for o in report.left_float)
    if report is not None and left > _MUCH * report.model_bytes_after:
        yield Advice(
            f"See why {size(left)} of weights stay float.", f"octavo inspect {floating} --verbose"
        )
    if judged.ship is not Ship.NOT:
        yield _serving(names)


def _about_speed(names: _Names, evidence: Evidence, bench: str) -> Iterator[Advice]:
    pair = evidence.pair(FLOAT, QUANTIZED)
    if names.torch:
        return
    if pair is None or pair.verdict is Verdict.NOISY:
        yield Advice("Time both models on this machine, while nothing else runs.", bench)
    elif pair.verdict is not Verdict.FASTER:
        yield Advice("Time them on inputs as large as yours.", f"{bench} --shape NAME=1x128")
    if names.target == "portable":
        out = PurePath(names.quantized).with_suffix(".native.onnx").name
        yield Advice(
            "Where Octavo is installed beside ONNX Runtime, its own operators are faster.",
            f"octavo quantize {_quoted(names.floating)} -o {_quoted(out)} --target native",
        )


def _serving(names: _Names) -> Advice:
    path = repr(clean(names.quantized))
    if names.factory:
        module, _, factory = clean(names.floating).rpartition(":")
        load = f"octavo.torch.load({path}, {module}.{factory})"
        return Advice("Load it in Python.", f"model = {load}")
    if names.torch:
        return Advice(
            "Load it in Python, as transformers loads any checkpoint.",
            f"model = AutoModel.from_pretrained({path})",
        )
    if names.folder:
        path = repr(clean(str(PurePath(names.quantized) / "model.onnx")))
    if names.target == "native":
        return Advice("Serve it from Python.", f"session = octavo.onnx.session({path})")
    return Advice("Serve it from Python.", f"session = onnxruntime.InferenceSession({path})")


def _quoted(text: str) -> str:
    return shlex.quote(clean(text))
