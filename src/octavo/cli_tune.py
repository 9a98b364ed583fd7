"""`octavo tune`: from a configuration file and options to a search, and what is printed of it."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING

from octavo.errors import OptionError, OutputError
from octavo.front_ends import names_factory, target_of

if TYPE_CHECKING:
    from octavo.recipe import Recipe
    from octavo.recipe.target import Target
    from octavo.recipe.tuning import TuneResult
    from octavo.tune import Config


def run(
    conf: Path,
    *,
    model: str | None,
    base: Recipe,
    evaluate: str | None,
    data: Path | None,
    output: Path | None,
    recipe_out: Path | None,
    workers: int,
    dask: str | None,
    resume: bool,
    workspace: Path | None,
    shapes: Sequence[str],
    report: Path | None,
    target: str | None,
    cpu: str | None,
    force: bool,
) -> TuneResult:
    """Searches, shows how it goes on stderr, and writes what was asked for."""
    from octavo.report.tuning_view import TuningView
    from octavo.tune import load_config, tune
    from octavo.tune.from_config import arguments, model_of, without_data

    config = load_config(conf)
    measured = evaluate is not None or config.performance_only
    problem = without_data(config)
    if problem and data is None and not measured:
        raise OptionError(problem)
    with contextlib.ExitStack() as stack:
        tuned = _target(stack, config, model_of(config, model), target, cpu)
        layers = [decision.layer for decision in tuned.decisions(base)]
        given = arguments(config, base, layers)
        if measured:
            given.pop("metric", None)
        out = output or _default_output(str(model), tuned, force)
        for path in (recipe_out, report):
            _check_folder(path)
        executor = None if dask is None else stack.enter_context(_dask(dask))
        view = stack.enter_context(TuningView())
        for note in (*config.notes, *map(str, config.inert), *config.unmatched(layers)):
            view.note(note)
        given["workspace"] = workspace or given.get("workspace") or Path("octavo_tuning", conf.stem)
        given["resume"] = resume or given.get("resume", False)
        result = tune(
            tuned,
            None if config.performance_only else evaluate,
            data=data,
            shapes=[shape_of(text) for text in shapes],
            workers=workers,
            executor=executor,
            output=out,
            view=view,
            path=(str(Path.cwd()),),
            **given,
        )
    if recipe_out is not None and result.output:
        _write_recipe(result, recipe_out)
    if report is not None:
        from octavo.report.html import tuning_html, write_html

        write_html(tuning_html(result), report)
    return result


def show(result: TuneResult, *, json: bool) -> None:
    """Prints the result: a page, or JSON alone on stdout; the verdict is the last line."""
    from octavo.report.text import console
    from octavo.report.tuning import print_tuning
    from octavo.report.tuning_verdict import last_line

    if json:
        print(result.to_json())  # noqa: T201
        print(last_line(result), file=sys.stderr)  # noqa: T201
        return
    print_tuning(result, console())
    print(last_line(result))  # noqa: T201


def shape_of(text: str) -> dict[str, tuple[int, ...]]:
    """`input_ids=1x128,attention_mask=1x128` as shapes by name."""
    found = {}
    for part in text.split(","):
        name, equals, dims = part.strip().rpartition("=")
        sizes = dims.lower().split("x")
        if not (name and equals and all(d.isdigit() and int(d) > 0 for d in sizes)):
            raise OptionError(
                f"--shape {text!r}: {part.strip()!r} is not NAME=SIZExSIZE.., such as "
                "input_ids=1x128,attention_mask=1x128"
            )
        if name in found:
            raise OptionError(f"--shape {text!r}: {name!r} is there twice")
        found[name] = tuple(int(d) for d in sizes)
    return found


def _target(
    stack: contextlib.ExitStack,
    config: Config,
    model: str | Path,
    target: str | None,
    cpu: str | None,
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
        if target or cpu:
            raise OptionError("--target and --cpu are for ONNX models; leave them out")
        return target_of(str(model))
    if config.front_end == "tensorflow":
        from octavo.onnx import from_tensorflow

        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="octavo-"))
        model = from_tensorflow(
            model, folder, inputs=config.inputs or None, outputs=config.outputs or None
        )
    quant_format = "qoperator" if target == "native" else config.quant_format
    return target_of(Path(model), target=target, cpu=cpu, quant_format=quant_format)


def _default_output(model: str, target: Target, force: bool) -> Path:
    stem = model.rpartition(":")[2] if names_factory(model) else Path(model).stem
    out = Path(f"{stem}.tuned{target.output_suffix}")
    if out.exists() and not force:
        raise OutputError(f"{out} exists; name it with -o or give --force to replace it")
    return out


def _check_folder(path: Path | None) -> None:
    """A place that cannot be written is known now, not after the search."""
    if path is not None and not path.parent.is_dir():
        raise OutputError(f"{path}: there is no folder {path.parent}; make it first")


def _write_recipe(result: TuneResult, path: Path) -> None:
    from octavo.recipe import dump_recipe
    from octavo.recipe.tuning import Approach

    recipe = result.best.recipe
    if recipe is None or result.best.approach is Approach.STATIC:
        raise OutputError(
            f"{path}: the best model is quantized statically, and recipes say dynamic quantization "
            f"only; the model is in {result.output}"
        )
    from octavo.files.text import write_text

    write_text(path, dump_recipe(recipe))


@contextlib.contextmanager
def _dask(address: str) -> Iterator[Executor]:
    """The cluster at `address` as an executor."""
    try:
        from distributed import Client
    except ImportError:
        raise OptionError(
            "--dask needs Dask, which is not installed: pip install 'octavo[distributed]'"
        ) from None
    try:
        client = Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise OptionError(
            f"--dask {address}: no scheduler answers there: {error}. Give its address, such as "
            "tcp://host:8786"
        ) from error
    with client:
        if not client.nthreads():
            raise OptionError(f"--dask {address}: the scheduler has no workers; start some first")
        yield client.get_executor(pure=False)
