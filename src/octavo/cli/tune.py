"""`octavo tune`: from a configuration file and options to a search."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from octavo.cli import tune_steps as tuning
from octavo.cli.options import (
    NOT_MET,
    Approach,
    CustomOpsOption,
    ForceOption,
    JsonOption,
    OpsOption,
    at_least_1,
    chosen_recipes,
    exit_codes,
    operators,
    shape_of,
)
from octavo.cli.places import check_places, free_output, plot_option, write_plot
from octavo.core.form import Cpu, Target
from octavo.errors import INTERRUPTED, OptionError, OutputError


def tune(
    conf: Annotated[
        Path,
        typer.Argument(
            metavar="CONF", help="A YAML file; those of Neural Compressor 1.x are read as they are."
        ),
    ],
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="The float ONNX model, or module:factory of a PyTorch model. Needed: CONF has its "
            "name only.",
        ),
    ] = None,
    evaluate: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Takes the model (an onnxruntime.InferenceSession, a torch module) and returns "
            "its accuracy, a number or a dict with one named accuracy. Modules in the current "
            "folder are found. Default: the file's metric.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DATA",
            help="Inputs and labels for the file's metric, and for static calibration: .npz, "
            ".jsonl, .csv or .parquet. Without a metric, agreement with the float model on them. "
            "Default: made up.",
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            "--batch-size",
            callback=at_least_1,
            metavar="N",
            help="Samples a run of DATA (but .jsonl); models with a fixed batch axis need that "
            "size. Default: the file's evaluation dataloader.batch_size, or 32.",
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The label in DATA. Default: label or labels.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="OUT",
            help="The model to write, if the criterion is met; it must not exist unless --force is "
            "given. Default: MODEL's name with .tuned.onnx (.tuned.safetensors for PyTorch) in the "
            "current directory.",
        ),
    ] = None,
    recipe_out: Annotated[
        Path | None,
        typer.Option(
            "--recipe-out",
            metavar="YAML",
            help="Write the best recipe there, for octavo quantize --recipe. Default: not written.",
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            metavar="PRESET|FILE",
            help="What the search starts from: a preset (as for quantize) or a YAML file. Default: "
            "the presets are tried, and the best is improved on.",
        ),
    ] = None,
    ops: OpsOption = [],  # noqa: B006
    shape: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=1x128,..",
            help="Shapes of the inputs that are timed (and made up). May be repeated: each is "
            "timed. Default: guessed from MODEL.",
        ),
    ] = [],  # noqa: B006
    approach: Annotated[
        Approach | None,
        typer.Option(
            "--approach",
            help="In place of the file's quantization.approach: a file for static quantization or "
            "for training runs as dynamic. Default: the file's.",
        ),
    ] = None,
    target: Annotated[
        Target | None,
        typer.Option("--target", help="Of ONNX models, as for quantize. Default: portable."),
    ] = None,
    cpu: Annotated[
        Cpu | None, typer.Option("--cpu", help="Of ONNX models, as for quantize. Default: vnni.")
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            callback=at_least_1,
            metavar="N",
            help="Threads of ONNX Runtime's sessions. Default: its own, one a core.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            callback=at_least_1,
            metavar="N",
            help="Processes that evaluate trials at once. Default: 1.",
        ),
    ] = None,
    dask: Annotated[str | None, typer.Option(hidden=True)] = None,
    workspace: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="For the history. Default: the file's tuning.workspace.path, or "
            "octavo_tuning/CONF's name.",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the search in the workspace.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="HTML",
            help="Write a page about the search to this .html file. Default: none is written.",
        ),
    ] = None,
    plot: Annotated[
        Path | None, plot_option("each trial's accuracy against its time, or its size,")
    ] = None,
    custom_ops: CustomOpsOption = [],  # noqa: B006
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Find the fastest preset that keeps the accuracy, and improve on it, as CONF says.

    With neither --evaluate nor a metric, outputs are compared with the float model's. Every trial
    runs in a process of its own, which is ended at the file's timeout. The result goes to stdout,
    each trial to stderr and into the workspace. Exits with 0 only if the criterion is met and OUT
    is written.
    """
    with exit_codes(), operators(custom_ops, model or ""):
        from octavo.report.tuning_view import TuningView
        from octavo.results.tuning import Status
        from octavo.tune import load_config
        from octavo.tune import tune as search
        from octavo.tune.inc.file_arguments import arguments, model_of, workspace_of

        bases = chosen_recipes(recipe, ops)
        config = load_config(conf, approach=None if approach is None else approach.value)
        model = str(model_of(config, model))
        if dask is not None:
            raise OptionError("--dask: trials run on this machine; give --workers N in its place")
        with contextlib.ExitStack() as stack:
            tuned = tuning.tuned_model(stack, config, model, target, cpu, threads, custom_ops)
            layers = [decision.layer for decision in tuned.decisions(bases[0])]
            given = arguments(config, bases, layers)
            tuning.measure_by(given, config, evaluate, data)
            read = [conf, Path(model), *([data] if data else [])]
            out = output or tuning.default_output(model, tuned)
            free_output(out, force=force, read=read)
            check_places([*read, out], recipe=recipe_out, page=report, plot=plot)
            view = stack.enter_context(TuningView())
            for note in config.all_notes(layers):
                view.note(note)
            given["workspace"] = workspace_of(config, workspace)
            given["resume"] = resume or given.get("resume", False)
            if batch_size is not None:
                given["batch_size"] = batch_size
            result = search(
                tuned,
                None if config.performance_only else evaluate,
                data=data,
                label=label,
                shapes=[shape_of(text) for text in shape],
                workers=workers or 1,
                output=out,
                view=view,
                path=(str(Path.cwd()),),
                **given,
            )
        with contextlib.ExitStack() as ends:  # whichever of them fails, the others are there
            if report is not None:
                ends.callback(tuning.write_page, result, report, shape, threads)
            ends.callback(write_plot, plot, lambda: tuning.plotted(result))
            result = tuning.with_note(result, recipe_out)
            if recipe_out is not None:
                how = (recipe_out, config.quant_format, target)
                ends.callback(tuning.write_recipe, result, *how)
            ends.callback(tuning.show, result, json=json)
        if result.status is Status.INTERRUPTED:
            raise typer.Exit(INTERRUPTED)
        if not result.status.met:
            raise typer.Exit(NOT_MET)
        if not result.output:
            raise typer.Exit(OutputError.exit_code)
