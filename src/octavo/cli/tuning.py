"""`octavo tune`: from a configuration file and options to a search, and what is printed of it."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.cli import options
from octavo.errors import OptionError, pip_install
from octavo.front_ends import names_factory, target_of

if TYPE_CHECKING:
    from octavo.recipe import Recipe
    from octavo.recipe.target import Target
    from octavo.results.tuning import TuneResult
    from octavo.tune import Config


def run(
    conf: Path,
    *,
    model: str | None,
    base: Recipe,
    evaluate: str | None,
    data: Path | None,
    batch_size: int | None,
    label: str | None,
    output: Path | None,
    recipe_out: Path | None,
    workers: int | None,
    dask: str | None,
    resume: bool,
    workspace: Path | None,
    shapes: Sequence[str],
    report: Path | None,
    approach: str | None,
    target: str | None,
    cpu: str | None,
    threads: int | None,
    custom_ops: Sequence[str],
    force: bool,
) -> TuneResult:
    """Searches, shows how it goes on stderr, and writes what was asked for."""
    from octavo.report.tuning_view import TuningView
    from octavo.tune import load_config, tune
    from octavo.tune.from_config import arguments, model_of

    config = load_config(conf, approach=approach)
    model = str(model_of(config, model))
    if dask is not None and workers is not None:
        raise OptionError("--workers and --dask: give one of them; both say where trials run")
    with contextlib.ExitStack() as stack:
        tuned = _target(stack, config, model, target, cpu, threads, custom_ops)
        layers = [decision.layer for decision in tuned.decisions(base)]
        given = arguments(config, base, layers)
        _measure_by(given, config, evaluate, data)
        out = output or _default_output(model, tuned, force)
        options.check_places(
            recipe_out, report, [conf, Path(model), *([data] if data else []), out]
        )
        executor = None if dask is None else stack.enter_context(_dask(dask))
        view = stack.enter_context(TuningView())
        for note in (*config.notes, *map(str, config.inert), *config.unmatched(layers)):
            view.note(note)
        given["workspace"] = workspace or given.get("workspace") or Path("octavo_tuning", conf.stem)
        given["resume"] = resume or given.get("resume", False)
        if batch_size is not None:
            given["batch_size"] = batch_size
        result = tune(
            tuned,
            None if config.performance_only else evaluate,
            data=data,
            label=label,
            shapes=[options.shape_of(text) for text in shapes],
            workers=workers or 1,
            executor=executor,
            output=out,
            view=view,
            path=(str(Path.cwd()),),
            **given,
        )
    for_onnx = f"--target {target or 'portable'} --format {config.quant_format}"
    note = _write_recipe(result, recipe_out, for_onnx if config.quant_format else "")
    if note:
        result = replace(result, notes=(*result.notes, note))
    return result


def write_page(
    result: TuneResult, page: Path, model: str, shapes: Sequence[str], threads: int | None
) -> None:
    """The page about the search; a model that was written is measured for it, once more."""
    from octavo.cli.evidence import How, evidence
    from octavo.report.html import tuning_html, write_html
    from octavo.results.tuning import Status

    write_html(tuning_html(result), page)  # whatever comes of measuring
    if result.output and result.status is not Status.INTERRUPTED:
        shape = shapes[0] if shapes else ""
        found = evidence(model, Path(result.output), How(shape=shape, threads=threads))
        write_html(tuning_html(result, found), page)


def _measure_by(
    given: dict[str, Any], config: Config, evaluate: str | None, data: Path | None
) -> None:
    """Changes the arguments where the command line or performance_only measure in place of the
    file's metric. Raises OptionError for a metric without data."""
    from octavo.tune import Criterion
    from octavo.tune.from_config import without_data

    if evaluate is not None or config.performance_only:
        given.pop("metric", None)
        given["criterion"] = config.criterion
    elif data is None and (problem := without_data(config)):
        raise OptionError(problem)
    if config.performance_only:  # a note of the file says so
        given["criterion"] = Criterion(absolute=1e9)


def show(result: TuneResult, *, json: bool) -> None:
    """Prints the result: a page, or JSON alone on stdout; the verdict is the last line."""
    from octavo.results.tuning_page import last_line

    options.show(result, json=json)
    print(last_line(result), file=sys.stderr if json else sys.stdout)


def _target(
    stack: contextlib.ExitStack,
    config: Config,
    model: str | Path,
    target: str | None,
    cpu: str | None,
    threads: int | None,
    custom_ops: Sequence[str],
) -> Target:
    """The model as the file's framework has it."""
    torch = names_factory(str(model))
    said = config.framework
    if torch != (config.front_end == "torch"):
        form = "module:factory" if config.front_end == "torch" else "a file"
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


def _default_output(model: str, target: Target, force: bool) -> Path:
    stem = model.rpartition(":")[2] if names_factory(model) else Path(model).stem
    return options.free_output(Path(f"{stem}.tuned{target.output_suffix}"), force=force)


def _write_recipe(result: TuneResult, path: Path | None, how: str) -> str:
    """Writes the best recipe, with the command that applies it; else says why not."""
    from octavo.files.staging import write_text
    from octavo.recipe import dump_recipe
    from octavo.results.tuning import Approach

    recipe = result.best.recipe
    if path is None:
        return ""
    if recipe is None or not result.best.meets:
        return f"{path} is not written: no recipe met the criterion"
    if result.best.approach is Approach.STATIC:
        return (
            f"{path} is not written: the best model is quantized statically, and recipes say "
            "dynamic quantization only"
        )
    command = f"octavo quantize {result.model} --recipe {path.name} {how}".rstrip()
    write_text(path, f"# {command}\n{dump_recipe(recipe)}")
    return ""


@contextlib.contextmanager
def _dask(address: str) -> Iterator[Executor]:
    """The cluster at `address` as an executor."""
    try:
        from distributed import Client
    except ImportError:
        raise OptionError(
            f"--dask needs Dask, which is not installed: {pip_install('distributed')}"
        ) from None
    try:
        client = Client(address, timeout="5s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise OptionError(
            f"--dask {address}: no scheduler answers there: {error}. Give its address, such as "
            "tcp://host:8786"
        ) from error
    with client:
        if not client.nthreads():
            raise OptionError(
                f"--dask {address}: the scheduler has no workers: start some with dask worker "
                f"{address}"
            )
        yield client.get_executor(pure=False)
