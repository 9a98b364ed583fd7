"""What `octavo tune` takes of its options, and what it prints and writes."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.cli import options
from octavo.cli.places import say_written
from octavo.errors import OptionError
from octavo.front_ends import names_factory, names_torch, refuse_gguf, target_of

if TYPE_CHECKING:
    from octavo.report.plots.style import Plot
    from octavo.results.target import Target
    from octavo.results.tuning import TuneResult
    from octavo.tune import Config


def write_page(result: TuneResult, page: Path, shapes: Sequence[str], threads: int | None) -> None:
    """Write the page about the search; measure a model that was written once more for the page."""
    from octavo.cli.evidence import How, evidence
    from octavo.report.html import tuning_html, write_html
    from octavo.results.tuning import Status

    write_html(tuning_html(result), page)  # whatever comes of measuring
    say_written(page)
    if result.output and result.status is not Status.INTERRUPTED:
        shape = shapes[0] if shapes else ""
        timed = result.best.time_ratio is not None  # by the search, in turns
        how = How(shape=shape, threads=threads)
        found = evidence(result.model, Path(result.output), how, times=not timed)
        write_html(tuning_html(result, found), page)


def plotted(result: TuneResult) -> Plot | None:
    """Return the search as a plot."""
    from octavo.report.plots.trials import trials_plot

    return trials_plot(result)


def measure_by(
    given: dict[str, Any], config: Config, evaluate: str | None, data: Path | None
) -> None:
    """Change the arguments where --evaluate or performance_only replaces the file's metric.

    Raises OptionError for a metric without data.
    """
    from octavo.tune import Criterion
    from octavo.tune.inc.file_arguments import without_data

    if evaluate is not None or config.performance_only:
        given.pop("metric", None)
        given["criterion"] = config.criterion
    elif data is None and (problem := without_data(config)):
        raise OptionError(problem)
    if config.performance_only:  # a note of the file says so
        given["criterion"] = Criterion(absolute=1e9)


def show(result: TuneResult, *, json: bool) -> None:
    """Print the result: a page, or JSON alone on stdout; the verdict is the last line."""
    from octavo.results.tuning_page import last_line

    options.show(result, json=json)
    print(last_line(result), file=sys.stderr if json else sys.stdout)


def tuned_model(
    stack: contextlib.ExitStack,
    config: Config,
    model: str | Path,
    target: str | None,
    cpu: str | None,
    threads: int | None,
    custom_ops: Sequence[str],
) -> Target:
    """Return the model as a target of the framework that the file `config` names."""
    refuse_gguf(str(model))
    torch = names_torch(str(model))
    said = config.framework
    if torch != (config.front_end == "torch"):
        form = "module:factory or a checkpoint" if config.front_end == "torch" else "a file"
        raise OptionError(
            f"--model {model}: {config.path} says framework {said}, whose models are named by "
            f"{form}; change one of the two"
        )
    if torch:
        if target or cpu or threads:
            raise OptionError(
                "--target, --cpu and --threads are for ONNX models; leave them out (of PyTorch, "
                "OMP_NUM_THREADS says the threads)"
            )
        return target_of(str(model))
    if config.front_end == "tensorflow":
        from octavo.onnx import from_tensorflow

        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="octavo-"))
        model = from_tensorflow(
            model, folder, inputs=config.inputs or None, outputs=config.outputs or None
        )
    quant_format = "qoperator" if target == "native" else config.quant_format
    return target_of(
        Path(model),
        target=target,
        cpu=cpu,
        quant_format=quant_format,
        threads=threads,
        custom_ops=custom_ops or None,
    )


def default_output(model: str, target: Target) -> Path:
    """Return the default output: named after the model, in the current folder."""
    stem = model.rpartition(":")[2] if names_factory(model) else Path(model).stem
    return Path(f"{stem}.tuned{target.output_suffix}")


def with_note(result: TuneResult, path: Path | None) -> TuneResult:
    """Return the result, with a note why no recipe is written to `path` if there is none."""
    why = "" if path is None else _no_recipe(result)
    note = f"{path} is not written: {why}"
    return replace(result, notes=(*result.notes, note)) if why else result


def _no_recipe(result: TuneResult) -> str:
    if result.best.recipe is None or not result.best.meets:
        return "no recipe met the criterion"
    if result.best.is_static:
        return "the best model is quantized statically, and recipes say dynamic quantization only"
    return ""


def write_recipe(
    result: TuneResult, path: Path, quant_format: str | None, target: str | None
) -> None:
    """Write the best recipe, with the command that applies it, where there is one to write."""
    from octavo.files.staging import write_text
    from octavo.recipe import dump_recipe

    recipe = result.best.recipe
    if recipe is None or _no_recipe(result):
        return
    how = f"--target {target or 'portable'} --format {quant_format}" if quant_format else ""
    command = f"octavo quantize {result.model} --recipe {path.name} {how}".rstrip()
    write_text(path, f"# {command}\n{dump_recipe(recipe)}")
