"""Reads a tuning configuration: the file, its mistakes, and what one key means for another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from octavo.errors import ConfigError, OptionError, did_you_mean
from octavo.recipe.yaml_files import Document, FileKind, read_text
from octavo.tune.goals import Criterion
from octavo.tune.inc.config import (
    FRONT_ENDS,
    Config,
    Inert,
    MetricSpec,
    MultiMetrics,
    ObjectiveSpec,
)
from octavo.tune.inc.entries import read_entries
from octavo.tune.inc.schema import APPROACHES, ROOT
from octavo.tune.inc.schema_data import dataset_words
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
    read,
)

CONFIG = FileKind("configuration", "start with `model:`", ConfigError)
_QLINEAR = (
    "onnxrt_qlinearops names operators (QLinearMatMul, QLinearConv) whose scales must be known "
    "before the model runs; dynamic quantization writes the integer operators of onnxrt_integerops"
)


def load_config(path: str | Path, *, approach: str | None = None) -> Config:
    """The configuration in the YAML file `path`, of Neural Compressor 1.x.

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
    """Writes `approach` over the document's; says so where that changes something."""
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


def _build(root: Section, document: Document, path: Path, notes: Sequence[str] = ()) -> Config:
    """The configuration that `root`, read from `path`, asks for, with no problems in it.

    `notes` come before those that are made here.
    """
    framework = root.get("model", "framework")
    front_end = FRONT_ENDS[framework.split("_")[0]]
    said = root.get("quantization", "approach", default="static")
    approach = "dynamic" if front_end == "torch" else said
    entries = read_entries(root.get("quantization"), front_end, document)
    inert = sorted(_inert(root, (), document, {approach, front_end}), key=lambda i: i.line)
    policy = ("tuning", "exit_policy")
    workspace = root.get("tuning", "workspace", "path")
    return Config(
        path=path,
        model_name=root.get("model", "name"),
        framework=framework,
        approach=approach,
        criterion=_criterion(root.get("tuning", "accuracy_criterion")),
        direction_said=_direction_said(root.get("tuning", "accuracy_criterion")),
        objectives=_objectives(root.get("tuning")),
        strategy=root.get("tuning", "strategy", "name", default="auto"),
        timeout=root.get(*policy, "timeout", default=0.0),
        max_trials=root.get(*policy, "max_trials", default=100),
        performance_only=root.get(*policy, "performance_only", default=False),
        seed=root.get("tuning", "random_seed", default=1978),
        workspace=Path(workspace) if workspace else None,
        resume=root.get("tuning", "workspace", "resume", default=False),
        inputs=root.get("model", "inputs", default=()),
        outputs=root.get("model", "outputs", default=()),
        metric=next(iter(_metrics(root.get(*ACCURACY, "metric"))), None),
        multi_metrics=_multi_metrics(root.get(*ACCURACY, "multi_metrics")),
        iteration=root.get(*ACCURACY, "iteration", default=-1),
        warmup=root.get(*PERFORMANCE, "warmup", default=5),
        performance_iteration=root.get(*PERFORMANCE, "iteration", default=-1),
        sampling_size=root.get("quantization", "calibration", "sampling_size", default=(100,)),
        dataset=_dataset(root),
        batch_size=root.get(*ACCURACY, "dataloader", "batch_size"),
        inert=tuple(inert),
        notes=(*notes, *_notes(root, document, framework, said), *entries.notes),
        model_wise=entries.model_wise,
        entries=entries.others,
    )


def _inert(section: Section, place: Place, document: Document, asked: set[str]) -> Iterator[Inert]:
    """The idle keys of `section`; what lies below one is not listed again."""
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
    if framework.startswith("pytorch") and approach == "auto":
        line = document.line(("quantization", "approach"))
        yield (
            f"line {line}: quantization.approach: Octavo has no static int8 layers for PyTorch, so "
            "that auto is dynamic alone"
        )
    for key in ("relative", "absolute"):
        place = ("tuning", "accuracy_criterion", key)
        bound = root.get(*place)
        if bound is not None and bound < 0:
            yield (
                f"line {document.line(place)}: {dotted(place)}: {bound:g} asks for more accuracy "
                "than the float model's, as in Neural Compressor; quantization rarely gives it"
            )
    if framework == "onnxrt_qlinearops" and approach != "static":
        yield f"line {document.line(('model', 'framework'))}: model.framework: {_QLINEAR}"
    place = ("tuning", "strategy", "name")
    name, said = root.get(*place), document.data.get("tuning") or {}
    written = (said.get("strategy") or {}).get("name")
    if name != written:
        yield f"line {document.line(place)}: tuning.strategy.name: {written} is done as {name}"
    if root.get("tuning", "exit_policy", "performance_only"):
        line = document.line(("tuning", "exit_policy", "performance_only"))
        yield (
            f"line {line}: tuning.exit_policy.performance_only: accuracy is not asked for; "
            "closeness to the float model is shown, and whatever it is, it is accepted"
        )
    if _multi(root.get("tuning")) and root.get("tuning", "objective"):
        line = document.line(("tuning", "objective"))
        yield f"line {line}: tuning.objective: multi_objectives decide, as in Neural Compressor"


def _criterion(said: Section | None) -> Criterion:
    if said is None:
        return Criterion(relative=0.01)
    return Criterion(
        said.get("relative"), said.get("absolute"), said.get("higher_is_better", default=True)
    )


def _direction_said(said: Section | None) -> bool:
    return said is not None and "higher_is_better" in said.given()


def _objectives(tuning: Section | None) -> tuple[ObjectiveSpec, ...]:
    multi = _multi(tuning)
    if tuning is None or multi is None:
        name = "performance" if tuning is None else tuning.get("objective", default="performance")
        return (ObjectiveSpec(name),)
    names = multi.get("objective")
    weights = multi.get("weight", default=(1.0,) * len(names))
    better = multi.get("higher_is_better", default=(None,))
    better = better * len(names) if len(better) == 1 else better
    return tuple(map(ObjectiveSpec, names, weights, better))


def _multi(tuning: Section | None) -> Section | None:
    found = (None if tuning is None else tuning.get(key) for key in MULTI_OBJECTIVES)
    return next((section for section in found if section is not None), None)


def _metrics(section: Section | None) -> list[MetricSpec]:
    found = []
    for name, value in ({} if section is None else section.given()).items():
        if name not in ("weight", "higher_is_better"):
            found.append(MetricSpec(name, {"k": value} if name == "topk" else _plain(value)))
    return found


def _multi_metrics(section: Section | None) -> MultiMetrics | None:
    if section is None:
        return None
    return MultiMetrics(
        tuple(_metrics(section)),
        section.get("weight", default=()),
        section.get("higher_is_better", default=()),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        return {key: _plain(inner) for key, inner in value.given().items()}
    return value


def _dataset(root: Section) -> str | None:
    places = (ACCURACY, ("quantization", "calibration"), PERFORMANCE)
    found = (dataset_words(root.get(*place, "dataloader")) for place in places)
    return next(filter(None, found), None)
