"""`octavo convert-target`: from one target to the other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from octavo.cli.options import (
    CustomOpsOption,
    ForceOption,
    JsonOption,
    end_if_unchecked,
    exit_codes,
    operators,
    show,
)
from octavo.cli.places import free_output
from octavo.core.form import Cpu, Target


def convert_target(
    model: Annotated[Path, typer.Argument(metavar="IN", help="The quantized ONNX model.")],
    to: Annotated[
        Target,
        typer.Option("--to", help="portable: stock ONNX Runtime operators. native: Octavo's own."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="OUT",
            help="The file to write, which must not exist unless --force is given. Default: IN's "
            "name with .portable.onnx or .native.onnx in the current directory.",
        ),
    ] = None,
    cpu: Annotated[
        Cpu | None,
        typer.Option("--cpu", help="Of portable files, as for quantize. Default: vnni."),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(
            metavar="DATA",
            help="Inputs for the comparison of IN and OUT, .npz or .jsonl. Default: made up.",
        ),
    ] = None,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Do not run IN and OUT and compare their outputs.")
    ] = False,
    force: ForceOption = False,
    custom_ops: CustomOpsOption = [],  # noqa: B006
    json: JsonOption = False,
) -> None:
    """Convert a quantized model to the other target: the same integers, no float model needed.

    For --to native IN may be a file of ONNX Runtime's quantizers, such as model_quantized.onnx.

    What was converted goes to stdout. Whatever goes wrong, no partial OUT is left.
    """
    with exit_codes(), operators(custom_ops):
        from octavo.onnx import convert_target as convert
        from octavo.report.terminal import progress_bar

        read = [model, *([inputs] if inputs else [])]
        out = output or Path(f"{model.stem}.{to}.onnx")
        free_output(out, force=force, read=read)
        with progress_bar() as progress:
            done = convert(
                model,
                out,
                to=to,
                cpu=cpu,
                check_inputs=inputs,
                verify=not no_verify,
                progress=progress,
            )
        show(done, json=json)
        end_if_unchecked(done.verification.status)
