"""From a file that fits the schema to a Config: defaults, and what one key means for another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from octavo.recipe.yaml_files import Document
from octavo.tune.config.checks import MULTI_OBJECTIVES
from octavo.tune.config.entries import read_entries
from octavo.tune.config.problems import Place, dotted
from octavo.tune.config.result import (
    FRONT_ENDS,
    Config,
    Inert,
    MetricSpec,
    MultiMetrics,
    Objective,
)
from octavo.tune.config.schema_data import dataset_words
from octavo.tune.config.section import Idle, Section
from octavo.tune.criterion import Criterion

_ACCURACY = ("evaluation", "accuracy")
_PERFORMANCE = ("evaluation", "performance")
_QLINEAR = (
    "onnxrt_qlinearops names operators (QLinearMatMul, QLinearConv) whose scales must be known "
    "before the model runs; dynamic quantization writes the integer operators of onnxrt_integerops"
)


def build(root: Section, document: Document, path: Path, notes: Sequence[str] = ()) -> Config:
    """The configuration that `root`, read from `path`, asks for; `checks` found nothing wrong.

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
        metric=next(iter(_metrics(root.get(*_ACCURACY, "metric"))), None),
        multi_metrics=_multi_metrics(root.get(*_ACCURACY, "multi_metrics")),
        iteration=root.get(*_ACCURACY, "iteration", default=-1),
        warmup=root.get(*_PERFORMANCE, "warmup", default=5),
        performance_iteration=root.get(*_PERFORMANCE, "iteration", default=-1),
        sampling_size=root.get("quantization", "calibration", "sampling_size", default=(100,)),
        dataset=_dataset(root),
        batch_size=root.get(*_ACCURACY, "dataloader", "batch_size"),
        inert=tuple(inert),
        notes=(*notes, *_notes(root, document, framework, said), *entries.notes),
        model_wise=entries.model_wise,
        entries=entries.others,
    )


def _inert(section: Section, place: Place, document: Document, asked: set[str]) -> Iterator[Inert]:
    """The idle keys of `section`; what lies below one is not listed again."""
    for key, value in section.given().items():
        here = (*place, key)
        found = [m for m in type(section).model_fields[key].metadata if isinstance(m, Idle)]
        if found and not asked.intersection(found[0].needed_by):
            yield Inert(document.line(here), dotted(here), found[0].reason)
        elif isinstance(value, Section):
            yield from _inert(value, here, document, asked)
        elif isinstance(value, dict):
            for name, inner in value.items():
                if isinstance(inner, Section):
                    yield from _inert(inner, (*here, name), document, asked)


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


def _objectives(tuning: Section | None) -> tuple[Objective, ...]:
    multi = _multi(tuning)
    if tuning is None or multi is None:
        name = "performance" if tuning is None else tuning.get("objective", default="performance")
        return (Objective(name),)
    names = multi.get("objective")
    weights = multi.get("weight", default=(1.0,) * len(names))
    better = multi.get("higher_is_better", default=(None,))
    better = better * len(names) if len(better) == 1 else better
    return tuple(map(Objective, names, weights, better))


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
    places = (_ACCURACY, ("quantization", "calibration"), _PERFORMANCE)
    found = (dataset_words(root.get(*place, "dataloader")) for place in places)
    return next(filter(None, found), None)
