"""`octavo tune`: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from octavo.cli import tuning
from octavo.cli.options import (
    NOT_MET,
    Approach,
    CustomOpsOption,
    ForceOption,
    JsonOption,
    OpsOption,
    RecipeOption,
    at_least_1,
    chosen_recipe,
    exit_codes,
    operators,
)
from octavo.errors import INTERRUPTED, OutputError
from octavo.recipe.form import Cpu, Target


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
            show_default=False,
        ),
    ] = None,
    evaluate: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Takes the model (an onnxruntime.InferenceSession, a torch module) and returns "
            "its accuracy, a number or a dict with one named accuracy. Modules in the current "
            "folder are found. Default: the file's metric.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DATA",
            help="Inputs and labels for the file's metric, and for static calibration: .npz, "
            ".jsonl, .csv or .parquet. Without a metric, agreement with the float model on them. "
            "Default: made up.",
            show_default=False,
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
            show_default=False,
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The label in DATA. Default: label or labels.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="OUT",
            help="The model to write, if the criterion is met. Default: MODEL's name with "
            ".tuned.onnx (.tuned.safetensors for PyTorch) in the current directory, which must "
            "not exist unless --force is given.",
            show_default=False,
        ),
    ] = None,
    recipe_out: Annotated[
        Path | None,
        typer.Option(
            "--recipe-out",
            metavar="YAML",
            help="Write the best recipe there, for octavo quantize --recipe. Default: not written.",
            show_default=False,
        ),
    ] = None,
    recipe: RecipeOption = "int8",
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
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            callback=at_least_1,
            metavar="N",
            help="Processes that evaluate trials at once. Default: 1.",
            show_default=False,
        ),
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Evaluate on the Dask cluster whose scheduler is there, such as "
            "tcp://host:8786. Model, data and modules must have the same paths there. Default: "
            "on this machine.",
            show_default=False,
        ),
    ] = None,
    workspace: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="For the history. Default: the file's tuning.workspace.path, or "
            "octavo_tuning/CONF's name.",
            show_default=False,
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
            show_default=False,
        ),
    ] = None,
    custom_ops: CustomOpsOption = [],  # noqa: B006
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Search for the fastest recipe that keeps the accuracy, as CONF says.

    With neither --evaluate nor a metric, outputs are compared with the float model's. Every trial
    runs in a process of its own, which is ended at the file's timeout. The result goes to stdout,
    each trial to stderr and into the workspace. Exits with 0 only if the criterion is met and OUT
    is written.
    """
    with exit_codes(), operators(custom_ops, model or ""):
        result = tuning.run(
            conf,
            model=model,
            base=chosen_recipe(recipe, ops),
            evaluate=evaluate,
            data=data,
            batch_size=batch_size,
            label=label,
            output=output,
            recipe_out=recipe_out,
            workers=workers,
            dask=dask,
            resume=resume,
            workspace=workspace,
            shapes=shape,
            report=report,
            approach=None if approach is None else approach.value,
            target=target,
            cpu=cpu,
            threads=threads,
            custom_ops=custom_ops,
            force=force,
        )
        tuning.show(result, json=json)
        if report is not None:
            tuning.write_page(result, report, result.model, shape, threads)
        if result.status.value == "interrupted":
            raise typer.Exit(INTERRUPTED)
        if not result.status.met:
            raise typer.Exit(NOT_MET)
        if not result.output:
            raise typer.Exit(OutputError.exit_code)
