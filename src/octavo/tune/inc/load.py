"""Reads a tuning configuration: the file, its mistakes, and what one key means for another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from octavo.errors import ConfigError, OptionError, did_you_mean
from octavo.recipe.yaml_files import Document, FileKind, read_text
from octavo.tune.goals import Criterion
from octavo.tune.inc.config import FRONT_ENDS, Config, Inert, MetricSpec
from octavo.tune.inc.entries import read_entries
from octavo.tune.inc.schema import APPROACHES, ROOT
from octavo.tune.inc.sections import (
    ACCURACY,
    MULTI_OBJECTIVES,
    PERFORMANCE,
    Place,
    Problem,
    Section,
    consistency_problems,
    dotted,
    error_of,
    key_of,
    plain,
    read,
)

CONFIG = FileKind("configuration", "start with `model:`", ConfigError)
_QLINEAR = (
    "onnxrt_qlinearops names operators (QLinearMatMul, QLinearConv) whose scales must be known "
    "before the model runs; dynamic quantization writes the integer operators of onnxrt_integerops"
)
_POLICY = ("tuning", "exit_policy")
# The fields of Config that are as the file has them.
_FIELDS: dict[str, tuple[str, ...]] = {
    "strategy": ("tuning", "strategy", "name"),
    **{name: (*_POLICY, name) for name in ("timeout", "max_trials", "performance_only")},
    "seed": ("tuning", "random_seed"),
    "resume": ("tuning", "workspace", "resume"),
    "inputs": ("model", "inputs"),
    "outputs": ("model", "outputs"),
    "iteration": (*ACCURACY, "iteration"),
    "warmup": (*PERFORMANCE, "warmup"),
    "performance_iteration": (*PERFORMANCE, "iteration"),
    "sampling_size": ("quantization", "calibration", "sampling_size"),
    "batch_size": (*ACCURACY, "dataloader", "batch_size"),
}


def load_config(path: str | Path, *, approach: str | None = None) -> Config:
    """Return the configuration in the YAML file `path`, of Neural Compressor 1.x.

    `approach` (`dynamic`, `static` or `auto`) takes the place of the file's quantization.approach,
    so that a file for static quantization or for training runs as dynamic. The file is read and
    never written. Raises ConfigError: one line for each mistake, with file, line, key, value and
    what is allowed; and OptionError for another approach.
    """
    path = Path(path)
    document = Document(read_text(path, CONFIG), str(path), CONFIG)
    notes = [] if approach is None else _override(document, approach)
    problems: list[Problem] = []
    root = read(ROOT, document.data, (), problems)
    problems = problems or list(consistency_problems(root))
    if problems:
        raise error_of(problems, document)
    return _build(root, document, path, notes)


def _override(document: Document, approach: str) -> list[str]:
    """Write `approach` over the document's, and say so where that changes something."""
    names = {short: name for name, short in APPROACHES.items()}
    if approach not in names:
        raise OptionError(f"approach={approach!r} (--approach).{did_you_mean(approach, names)}")
    data = document.data
    section = data.get("quantization") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(section, dict | None):
        return []  # the schema says what is wrong with it
    said = (section or {}).get("approach")
    data["quantization"] = {**(section or {}), "approach": names[approach]}
    if said is None or said == names[approach]:
        return []
    line = document.line(("quantization", "approach"))
    return [f"line {line}: quantization.approach: {said} is done as {names[approach]}, as asked"]


def _build(root: Section, document: Document, path: Path, notes: Sequence[str]) -> Config:
    """Return the configuration that `root` asks for, with no problems in it.

    `notes` come before those that are made here.
    """
    framework = root.get("model", "framework")
    front_end = FRONT_ENDS[framework.split("_")[0]]
    said = root.get("quantization", "approach", default="static")
    approach = "dynamic" if front_end == "torch" else said
    entries = read_entries(root, front_end, document)
    bounds = root.get("tuning", "accuracy_criterion") or Section({}, {"relative": 0.01})
    workspace = root.get("tuning", "workspace", "path")
    fields = {name: root.get(*place) for name, place in _FIELDS.items()}
    return Config(
        path=path,
        model_name=root.get("model", "name"),
        framework=framework,
        approach=approach,
        criterion=Criterion(**bounds.said),
        direction_said="higher_is_better" in bounds.said,
        objectives=_objectives(root),
        workspace=Path(workspace) if workspace else None,
        metrics=_metrics(root),
        dataset=_dataset(root),
        inert=tuple(
            sorted(_inert(root, (), document, {approach, front_end}), key=lambda i: i.line)
        ),
        notes=(*notes, *_notes(root, document, framework, said), *entries.notes),
        model_wise=entries.model_wise,
        entries=entries.others,
        **{name: value for name, value in fields.items() if value is not None},
    )


def _inert(section: Section, place: Place, document: Document, asked: set[str]) -> Iterator[Inert]:
    """Yield the idle keys of `section`; what lies below one is not listed again."""
    for name, value in section.given().items():
        here, key = (*place, name), key_of(section.keys[name])
        if key.idle and not asked.intersection(key.used_by):
            yield Inert(document.line(here), dotted(here), key.idle)
            continue
        by_name = value.items() if isinstance(value, dict) else ()
        for at, inner in ((here, value), *(((*here, key), inner) for key, inner in by_name)):
            if isinstance(inner, Section):
                yield from _inert(inner, at, document, asked)


def _notes(root: Section, document: Document, framework: str, approach: str) -> Iterator[str]:
    def note(words: str, *place: str) -> str:
        return f"line {document.line(place)}: {dotted(place)}: {words}"

    if framework.startswith("pytorch") and approach == "auto":
        static = "Octavo has no static int8 layers for PyTorch, so that auto is dynamic alone"
        yield note(static, "quantization", "approach")
    for key in ("relative", "absolute"):
        place = ("tuning", "accuracy_criterion", key)
        bound = root.get(*place)
        if bound is not None and bound < 0:
            more = f"{bound:g} asks for more accuracy than the float model's, as in Neural"
            yield note(f"{more} Compressor; quantization rarely gives it", *place)
    if framework == "onnxrt_qlinearops" and approach != "static":
        yield note(_QLINEAR, "model", "framework")
    name, said = root.get(*_FIELDS["strategy"]), document.data.get("tuning") or {}
    written = (said.get("strategy") or {}).get("name")
    if name != written:
        yield note(f"{written} is done as {name}", *_FIELDS["strategy"])
    if root.get(*_POLICY, "performance_only"):
        closeness = "accuracy is not asked for; closeness to the float model is shown, and"
        yield note(f"{closeness} whatever it is, it is accepted", *_POLICY, "performance_only")
    if _multi(root) and root.get("tuning", "objective"):
        decide = "multi_objectives decide, as in Neural Compressor"
        yield note(decide, "tuning", "objective")


def _multi(root: Section) -> Section | None:
    found = (root.get("tuning", key) for key in MULTI_OBJECTIVES)
    return next((section for section in found if section is not None), None)


def _objectives(root: Section) -> tuple[tuple[str, float], ...]:
    multi = _multi(root)
    if multi is None:
        return ((root.get("tuning", "objective", default="performance"), 1.0),)
    names = multi.get("objective")
    return tuple(zip(names, multi.get("weight", default=(1.0,) * len(names)), strict=True))


def _metrics(root: Section) -> tuple[MetricSpec, ...]:
    section = root.get(*ACCURACY, "metric") or root.get(*ACCURACY, "multi_metrics")
    said = {} if section is None else plain(section)
    lists = [said.pop(key, ()) for key in ("weight", "higher_is_better")]
    weights, upwards = (values or (None,) * len(said) for values in lists)
    return tuple(
        MetricSpec(name, {"k": options} if name == "topk" else options, weight, up)
        for (name, options), weight, up in zip(said.items(), weights, upwards, strict=True)
    )


def _dataset(root: Section) -> str | None:
    places = (ACCURACY, ("quantization", "calibration"), PERFORMANCE)
    named = (root.get(*place, "dataloader", "dataset") for place in places)
    return next((" and ".join(sets) for sets in named if sets), None)
