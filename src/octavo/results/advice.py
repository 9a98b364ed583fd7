"""What to do next with a quantized model: the commands that follow from what was found.

They keep what the command line was given, and write to places of their own.
"""

from __future__ import annotations

import glob
import re
import shlex
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from octavo.results.benchmark import Verdict
from octavo.results.comparison import Comparison
from octavo.results.evidence import FLOAT, QUANTIZED, Evidence
from octavo.results.judgement import Finding, Judgement, Ship, worst_output
from octavo.results.words import clean, size

if TYPE_CHECKING:
    from octavo.results.report import Report

MOST = 3
"""How many are given: who gets ten does none."""
_ACCURATE = "int8-accurate"
_MUCH = 0.1  # of the quantized model's bytes, which layers left float hold
_DATA, _TEXTS = "data.npz", "texts.jsonl"
_COMPARING = frozenset({"--inputs", "--custom-ops"})
"""Options of octavo quantize that octavo report has, too."""
_OPERATORS = frozenset({"--custom-ops"})
_OF_RECIPES = frozenset({"--bits", "--size", "--error-feedback"})
"""Options that belong to the recipe beside them, and go with it."""
_OF_PORTABLE = frozenset({"--format", "--cpu"})
_SHAPE = re.compile(r"([^,=]+=[1-9]\d*(x[1-9]\d*)*(,(?=.)|$))+")
"""What --shape takes: inputs without dimensions, or with an empty one, have no such form."""


@dataclass(frozen=True)
class Advice:
    """What to do, why, and the command or the Python line that does it."""

    what: str
    command: str


@dataclass(frozen=True)
class _Names:
    """The models as a command line has them, and the options that it was given."""

    floating: str
    quantized: str
    target: str
    options: tuple[tuple[str, str], ...] = ()
    files: tuple[str, ...] = ()

    @property
    def torch(self) -> bool:
        return self.target == "torch"

    @property
    def factory(self) -> bool:
        """Tell whether the float model is `module:factory`, which commands take."""
        return self.torch and ":" in self.floating

    @property
    def folder(self) -> bool:
        """Tell whether they are checkpoints, of which reports name the folder alone."""
        return not self.factory and not self.quantized.endswith(".onnx")

    @property
    def on_disk(self) -> bool:
        """Tell whether a command can name the float model; one in memory has no name."""
        return self.folder or self.factory or not self.floating.startswith("(")

    def report(self, **more: str) -> str:
        """Return the command `octavo report`, with the options `more`, given by their names."""
        page = str(PurePath(self.quantized).with_suffix("" if self.folder else ".html"))
        page += ".html" if self.folder else ""
        kept = _options(self.options, _COMPARING, more)
        return " ".join(
            ("octavo report", *_quoted(self.floating, self.quantized, "--html", page), *kept)
        )

    def quantize(self, word: str, **more: str) -> str:
        """Return the command `octavo quantize` to another file, in whose name `word` stands."""
        path = PurePath(self.quantized)
        out = path.with_name(f"{path.stem}.{word}{path.suffix}")
        gone = _OF_RECIPES if "recipe" in more else frozenset[str]()
        gone |= _OF_PORTABLE if more.get("target") == "native" else frozenset[str]()
        given = [pair for pair in self.options or self._told if pair[0] not in gone]
        kept = _options(given, None, more)
        return " ".join(("octavo quantize", *_quoted(self.floating, "-o", str(out)), *kept))

    def bench(self, *more: str) -> str:
        """Return the command `octavo bench` of both models on one thread."""
        kept = _options(self.options, _OPERATORS, {})
        both = _quoted(self.floating, self.quantized)
        return " ".join(("octavo bench", *both, "--threads 1", *more, *kept))

    @property
    def again(self) -> bool:
        """Tell whether a command can name the recipe: of a file, perhaps nobody knows the place."""
        return UNKNOWN_RECIPE not in self.options

    @property
    def _told(self) -> tuple[tuple[str, str], ...]:
        """Return what the target says of the options, where nobody kept them."""
        return (("--target", self.target),) if self.target == "native" else ()


UNKNOWN_RECIPE = ("--recipe", "")
"""In options: the recipe is in a file of which nobody knows the place."""


def advice(report: Report | None, evidence: Evidence, judged: Judgement) -> tuple[Advice, ...]:
    """Return the advice, the most urgent first, at most `MOST` of it."""
    names = _names(report, evidence.comparison)
    if names is None:
        return ()
    if not names.quantized:
        return tuple(_in_python(judged))[:MOST]
    return tuple(_every(names, report, evidence, judged))[:MOST]


def _names(report: Report | None, found: Comparison | None) -> _Names | None:
    if report is not None:
        return _Names(report.source, report.output, report.target, report.options, report.files)
    if found is not None:
        return _Names(found.float_model, found.quantized_model, found.target)
    return None


def _in_python(judged: Judgement) -> Iterator[Advice]:
    """Yield advice on a module that was quantized in Python, and is in no file."""
    if judged.found(Finding.NOTHING_QUANTIZED):
        yield Advice("See why each layer stays float.", "print(octavo.torch.inspect(float_model))")
        return
    yield Advice(
        "Compare it on a batch of yours: inputs by the names that forward gives them.",
        "import octavo.torch; print(octavo.torch.compare(float_model, model, **batch))",
    )
    yield Advice("Save it.", "octavo.torch.save(model, 'model.safetensors')")


def _every(
    names: _Names, report: Report | None, evidence: Evidence, judged: Judgement
) -> Iterator[Advice]:
    inspect = " ".join(("octavo inspect", *_quoted(names.floating), "--verbose"))
    if judged.found(Finding.NOTHING_QUANTIZED):
        if names.on_disk:
            yield Advice("See why each layer stays float.", inspect)
        return
    if names.on_disk:
        yield from _about_error(names, report, evidence.comparison, judged)
        if judged.ship is not Ship.NOT:
            yield from _about_speed(names, evidence)
        left = 0 if report is None else sum(o.bytes_before for o in report.left_float)
        if report is not None and left > _MUCH * report.model_bytes_after and not names.folder:
            yield Advice(f"See why {size(left)} of weights stay float.", inspect)
    elif judged.found(Finding.MADE_UP, Finding.NOT_COMPARED, Finding.UNREACHED):
        call = f"quantize_dynamic(model, {clean(names.quantized)!r}, check_inputs={_DATA!r})"
        what = "Quantize it again with inputs of yours, to compare it on them."
        yield Advice(what, f"octavo.onnx.{call}")
    if judged.ship is not Ship.NOT:
        yield _serving(names, "" if report is None else report.cpu)


def _about_error(
    names: _Names, report: Report | None, found: Comparison | None, judged: Judgement
) -> Iterator[Advice]:
    if names.folder and not names.torch:
        return  # a folder of ONNX files: compare takes the files
    nothing = worst_output(found) is None and judged.found(Finding.FLOAT_NOT_FINITE)
    if nothing or judged.found(Finding.MADE_UP, Finding.NOT_COMPARED, Finding.UNREACHED):
        known = dict(names.options).get("--inputs")
        what = "Compare it on inputs of yours, a hundred are enough: "
        what += "a text a line." if names.folder else "one entry for each input."
        if judged.found(Finding.UNREACHED) and known is not None:
            what, known = "Compare it on inputs that come to all layers.", None
        if nothing:
            what = "Compare it on inputs on which the float model's outputs are finite."
            known = None
        yield Advice(what, names.report(inputs=known or (_TEXTS if names.folder else _DATA)))
    if names.folder:
        return
    if found is not None and found.suspect is not None and names.again:
        layer = glob.escape(found.suspect.name)
        again = names.quantize("excluded", exclude=layer)
        yield Advice("Leave the layer that errs most float.", again)
    least = report is not None and report.recipe.get("name") == _ACCURATE
    if judged.found(Finding.ABOVE_BOUND, Finding.NOT_CLOSE, Finding.NOT_FINITE) and not least:
        again = names.quantize("accurate", recipe=_ACCURATE)
        yield Advice("Take a recipe with less error, at some speed.", again)


def _about_speed(names: _Names, evidence: Evidence) -> Iterator[Advice]:
    pair = evidence.pair(FLOAT, QUANTIZED)
    if names.torch or names.folder:
        return
    if pair is None or pair.verdict is Verdict.NOISY:
        yield Advice("Time both models on this machine, while nothing else runs.", names.bench())
    elif pair.verdict is not Verdict.FASTER and _SHAPE.fullmatch(pair.shape):
        shape = ("--shape", *_quoted(pair.shape))
        what = "Time them on inputs as large as yours, in place of those that were timed."
        yield Advice(what, names.bench(*shape))
    if names.target == "portable" and names.again:
        yield Advice(
            "Where Octavo is installed beside ONNX Runtime, its own operators are faster.",
            names.quantize("native", target="native"),
        )


def _serving(names: _Names, cpu: str) -> Advice:
    path = repr(clean(names.quantized))
    if names.factory:
        module, _, factory = clean(names.floating).rpartition(":")
        load = f"model = octavo.torch.load({path}, {module}.{factory})"
        return Advice("Load it in Python.", f"import octavo.torch, {module}; {load}")
    if names.torch:
        return Advice(
            "Load it in Python, by the class of its task in place of AutoModel.",
            "import octavo.torch; from transformers import AutoModel; "
            f"model = AutoModel.from_pretrained({path})",
        )
    if names.folder:
        first = names.files[0] if names.files else "model.onnx"
        path = repr(clean(str(PurePath(names.quantized) / first)))
    ours = f"import octavo.onnx; session = octavo.onnx.session({path})"
    if names.target == "native":
        return Advice("Serve it from Python.", ours)
    any_cpu = cpu != "vnni"
    return Advice(
        "Serve it from Python."
        if any_cpu
        else "Serve it from Python; on x86 without VNNI or AMX with octavo.onnx.session.",
        f"import onnxruntime; session = onnxruntime.InferenceSession({path})",
    )


def _options(
    given: Iterable[tuple[str, str]], taken: Collection[str] | None, more: dict[str, str]
) -> Iterator[str]:
    """Yield the `given` options that are in `taken` (None: all), and `more`, which replace them."""
    new = {f"--{name}": value for name, value in more.items()}
    repeated = {"--exclude"}
    for name, value in given:
        if (taken is None or name in taken) and (name in repeated or name not in new):
            yield from (name, *_quoted(value)) if value else (name,)
    for name, value in new.items():
        yield from (name, *_quoted(value))


def _quoted(*texts: str) -> tuple[str, ...]:
    return tuple(shlex.quote(clean(text)) for text in texts)
