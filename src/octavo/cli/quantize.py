"""`octavo quantize` and `octavo inspect`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from octavo.cli import checkpoints, torch_models
from octavo.cli.bit_budget import BitsOption, MaxErrorOption, SizeOption, fewest_bits, limited
from octavo.cli.evidence import How
from octavo.cli.options import (
    CpuOption,
    CustomOpsOption,
    ForceOption,
    FormatOption,
    JsonOption,
    OpsOption,
    RecipeOption,
    TargetOption,
    TimedThreadsOption,
    To,
    ToOption,
    chosen_recipe,
    end_if_unchecked,
    exit_codes,
    given_options,
    operators,
    shape_of,
    show,
)
from octavo.cli.places import check_places, free_output
from octavo.core.form import Cpu, QuantFormat, Target
from octavo.errors import OptionError
from octavo.files.checkpoints import is_gguf, names_checkpoint

if TYPE_CHECKING:
    from octavo.recipe import Recipe
    from octavo.results.page import Result
    from octavo.results.report import Report


def quantize(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="IN",
            help="The float ONNX model; or module:factory, a callable without arguments that "
            "returns a float PyTorch model (modules in the current folder are found); or a "
            "checkpoint of transformers: its folder, or its name in Hugging Face's cache; or a "
            "GGUF file of llama.cpp, whose integers are kept.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="OUT",
            help="The file to write, which must not exist unless --force is given: then it is "
            "replaced once the new one is complete. Default: IN's name with .int8.onnx "
            "(.int8.native.onnx for target native, .fp16.onnx for float16; .safetensors for "
            "PyTorch) in the current directory. Of a checkpoint the folder to write, which must be "
            "empty or not exist; with --force one that Octavo wrote is replaced. Default: IN's "
            "name with -int8, -int8-onnx or -int8-native.",
        ),
    ] = None,
    to: ToOption = To.TORCH,
    recipe: RecipeOption = "int8",
    bits: BitsOption = None,
    size: SizeOption = "",
    max_error: MaxErrorOption = None,
    exclude: Annotated[
        list[str],
        typer.Option(
            metavar="GLOB", help="Leave these layers float. May be repeated. Default: none."
        ),
    ] = [],  # noqa: B006
    only: Annotated[
        list[str],
        typer.Option(
            metavar="GLOB", help="Quantize these layers only. May be repeated. Default: all."
        ),
    ] = [],  # noqa: B006
    ops: OpsOption = [],  # noqa: B006
    inputs: Annotated[
        Path | None,
        typer.Option(
            metavar="DATA",
            help="Inputs of the model, .npz or .jsonl, for the check against the float model, and "
            "to round weights of 4 bits by: a hundred are enough. One entry for each model input; "
            "for checkpoints with --to torch a text a line of a .jsonl, too. Default: for the "
            "check made up from the model's graph; rounding looks at weights alone.",
        ),
    ] = None,
    error_feedback: Annotated[
        bool,
        typer.Option(
            "--error-feedback",
            help="Later weights of 4 bits make up for what earlier ones lost (GPTQ), on --inputs; "
            "for checkpoints with --to torch, without --inputs, on inputs that are made up.",
        ),
    ] = False,
    cpu: CpuOption = Cpu.VNNI,
    target: TargetOption = Target.PORTABLE,
    format: FormatOption = QuantFormat.QOPERATOR,
    external_data: Annotated[
        bool,
        typer.Option(
            "--external-data",
            help="Write the weights to a file of their own beside OUT; above 2 GB it must be.",
        ),
    ] = False,
    no_verify: Annotated[
        bool,
        typer.Option(
            "--no-verify", help="Do not load the result and compare it with the float model."
        ),
    ] = False,
    allow_quantized: Annotated[
        bool,
        typer.Option(
            "--allow-quantized", help="Accept a model that is partly quantized; do the rest."
        ),
    ] = False,
    allow_nothing: Annotated[
        bool,
        typer.Option("--allow-nothing", help="Write OUT even if no layer would be quantized."),
    ] = False,
    page: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="HTML",
            help="Write a page about the outcome to this .html file, as octavo report does; "
            "timing the models for it takes some seconds. Default: none is written.",
        ),
    ] = None,
    custom_ops: CustomOpsOption = [],  # noqa: B006
    shape: Annotated[
        str,
        typer.Option(
            metavar="NAME=1x128,..",
            help="Shapes of the made-up inputs that models are timed on for --report. Default: the "
            "first of --inputs, else guessed from IN's graph.",
            show_default=False,
        ),
    ] = "",
    threads: TimedThreadsOption = None,
    force: ForceOption = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Name every layer in the report.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Quantize IN and check the result against it.

    Layer names may be globs (quote them: '/encoder/*'). Whatever goes wrong, IN is as it was and
    no partial OUT is left. The report goes to stdout.

    ONNX models take every option but --to.

    PyTorch models (module:factory) take --output, --recipe, --bits, --size, --exclude, --only,
    --allow-nothing, --report, --force, --verbose and --json. They are written for
    octavo.torch.load.

    Checkpoints take --output, --to, --recipe, --bits, --size, --exclude, --only, --no-verify,
    --report, --force, --verbose and --json. With --to torch they also take --inputs and
    --error-feedback, and are checked on --inputs alone. With --to onnx and --to native they also
    take --cpu.
    """
    with exit_codes(), operators(custom_ops, model):
        if names_checkpoint(model) or is_gguf(model):
            checkpoints.refuse_options(context, model, to)
            check_places([], page=page)
            if bits is not None or size:
                checkpoints.refuse_limits(model)
            chosen = limited(
                chosen_recipe(recipe), bits, size, None, partial(checkpoints.inspect, model)
            )
            out = output or checkpoints.default_folder(model, to, chosen)
            wanted = checkpoints.Wanted(
                *(to, chosen, only, exclude, cpu, not no_verify, force, inputs, error_feedback)
            )
            made = replace(checkpoints.quantize(model, out, wanted), options=given_options(context))
            _finish(made, page, model, None, partial(show, json=json, verbose=verbose))
            return
        checkpoints.refuse_to(context, model)
        if torch_models.names_factory(model):
            torch_models.refuse_onnx_options(context, model)
            chosen = limited(
                chosen_recipe(recipe), bits, size, None, partial(torch_models.inspect, model)
            )
            name = model.rpartition(".")[2].rpartition(":")[2]
            out = free_output(output or _default_output(name, "safetensors", chosen), force=force)
            check_places([out], page=page)
            made = torch_models.quantize(
                model, out, chosen, only, exclude, allow_nothing=allow_nothing
            )
            made = replace(made, options=given_options(context))
            _finish(made, page, model, How(), partial(show, json=json, verbose=verbose))
            return
        if no_verify and max_error is not None:
            raise OptionError("--max-error is what the check compares: leave --no-verify out")
        how = _how_to_time(inputs, shape, threads, page)
        from octavo.onnx import inspect as inspect_model
        from octavo.onnx import quantize_dynamic
        from octavo.report.terminal import progress_bar

        form: dict[str, Any] = {"target": target, "cpu": cpu, "quant_format": format}
        chosen = limited(
            *(chosen_recipe(recipe, ops), bits, size, max_error),
            lambda some: inspect_model(Path(model), some, **form),
        )
        suffix = "native.onnx" if target is Target.NATIVE else "onnx"
        read = [Path(model), *([inputs] if inputs else [])]
        out = output or _default_output(Path(model).stem, suffix, chosen)
        free_output(out, force=force, read=read)
        check_places([*read, out], page=page)

        with progress_bar() as progress:
            report = fewest_bits(
                chosen,
                max_error,
                lambda some: quantize_dynamic(
                    Path(model),
                    out,
                    nodes_to_quantize=list(only) or None,
                    nodes_to_exclude=list(exclude) or None,
                    use_external_data_format=external_data,
                    recipe=some,
                    **form,
                    check_inputs=inputs,
                    error_feedback=error_feedback,
                    verify=not no_verify,
                    progress=progress,
                    allow_quantized=allow_quantized,
                    allow_nothing=allow_nothing,
                ),
            )
        report = replace(report, options=given_options(context))
        measured = None if no_verify else how
        _finish(report, page, model, measured, partial(show, json=json, verbose=verbose))
        end_if_unchecked(report.verification.status)


def inspect(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="IN",
            help="The ONNX model, module:factory of a PyTorch model, or a checkpoint of "
            "transformers or a GGUF file, whose weights are not read.",
        ),
    ],
    recipe: RecipeOption = "int8",
    ops: OpsOption = [],  # noqa: B006
    cpu: CpuOption = Cpu.VNNI,
    target: TargetOption = Target.PORTABLE,
    format: FormatOption = QuantFormat.QOPERATOR,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Name every layer, in full.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show the layers of IN and what a recipe would do with each, on stdout. Writes no file."""
    from octavo.report.terminal import working

    with exit_codes():
        if names_checkpoint(model) or is_gguf(model):
            checkpoints.refuse_options(context, model, To.TORCH)
            with working("reading the checkpoint's headers"):
                found = checkpoints.inspect(model, chosen_recipe(recipe))
        elif torch_models.names_factory(model):
            torch_models.refuse_onnx_options(context, model)
            with working("building the model"):
                found = torch_models.inspect(model, chosen_recipe(recipe))
        else:
            form: dict[str, Any] = {"target": target, "cpu": cpu, "quant_format": format}
            with working("reading the model"):
                from octavo.onnx import inspect as inspect_model

                found = inspect_model(Path(model), chosen_recipe(recipe, ops), **form)
        show(found, json=json, verbose=verbose)


def _how_to_time(inputs: Path | None, shape: str, threads: int | None, page: Path | None) -> How:
    """Return how to time; raise OptionError for a wrong shape, and for options without a page."""
    for option, given in (("--shape", shape), ("--threads", threads)):
        if given and page is None:
            raise OptionError(f"{option} says how --report times the models: give --report, too")
    if shape:
        shape_of(shape)
    return How(inputs, shape, threads)


def _finish(
    report: Report,
    page: Path | None,
    model: str,
    how: How | None,
    shown: Callable[[Result], None],
) -> None:
    """Show the report, and write the page.

    What is measured for the page (if `how` is given) has a part in the verdict, which is the same
    in both.
    """
    if page is None:
        shown(report)
        return
    from octavo.cli.evidence import evidence
    from octavo.report.html import in_short, report_html, write_html
    from octavo.results.report import MeasuredReport

    found, to_show = None, cast("Result", report)
    try:
        write_html(report_html(report), page)  # whatever comes of measuring
        if report.quantized and how is not None:
            found = evidence(model, Path(report.output), how)
            to_show = MeasuredReport(report, found)
            write_html(report_html(report, found), page)
    finally:
        shown(to_show)
    print(f"{page} is written: {in_short(report, found)}", file=sys.stderr)  # noqa: T201


def _default_output(stem: str, suffix: str, recipe: Recipe) -> Path:
    return Path(f"{stem}.{checkpoints.kind_of(recipe)}.{suffix}")
