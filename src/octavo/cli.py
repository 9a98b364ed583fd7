"""The command line: a thin shell around the front ends, which are imported when a command runs."""

from __future__ import annotations

import contextlib
import itertools
import json as json_module
import sys
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo import cli_bench, cli_compare, cli_convert, cli_torch, cli_tune
from octavo.errors import OctavoError, OptionError, OutputError, RecipeError, did_you_mean

if TYPE_CHECKING:
    from octavo.recipe import Recipe, Report

INTERRUPTED = 130
SOMETHING_MISSING = 7
NOT_MET = 8

_EXIT_CODES = """
\b
Exit codes:
  0    done
  1    an unexpected error (with a traceback: please report it)
  2    a wrong option, recipe, layer name, operator type or input data
  3    the model cannot be read or handled, or is quantized already
  4    nothing would be quantized
  5    the quantized model does not load or is too far from the float one
  6    the output cannot be written
  7    doctor: something that is needed is missing or too old
  8    tune: no recipe that meets the criterion was found
  9    tune: the float model cannot be evaluated
  130  interrupted (Ctrl-C)
"""

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Cpu(str, Enum):
    """Values of --cpu."""

    VNNI = "vnni"
    ANY = "any"


class Target(str, Enum):
    """Values of --target."""

    PORTABLE = "portable"
    NATIVE = "native"


class Against(str, Enum):
    """Values of --against."""

    ORT = "ort"


class Format(str, Enum):
    """Values of --format."""

    QOPERATOR = "qoperator"
    QDQ = "qdq"


RecipeOption = Annotated[
    str,
    typer.Option(
        "--recipe",
        metavar="PRESET|FILE",
        help="A preset (int8, int8-per-tensor, int8-accurate, int8-block, float16) or a YAML file.",
    ),
]
OpsOption = Annotated[
    list[str],
    typer.Option(
        "--ops",
        metavar="OP[,OP]",
        help="Quantize these operator types too, with the recipe's default scheme (Conv, for "
        "example, is float by default). May be repeated.",
    ),
]
CpuOption = Annotated[
    Cpu,
    typer.Option(
        "--cpu",
        help="vnni: int8 weights, fastest with VNNI or AMX; x86 without them needs "
        "octavo.onnx.session. any: uint8 weights, exact everywhere, half as fast.",
    ),
]
TargetOption = Annotated[
    Target,
    typer.Option(
        "--target",
        help="What runs the result. portable: stock ONNX Runtime. native: ONNX Runtime with "
        "Octavo's own operators, which octavo.onnx.session registers: faster and more accurate.",
    ),
]
FormatOption = Annotated[
    Format,
    typer.Option(
        "--format",
        help="qoperator: integer operators, for ONNX Runtime. qdq: "
        "DynamicQuantizeLinear/DequantizeLinear pairs, per tensor, for other runtimes.",
    ),
]


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command line and exits; `argv` defaults to the process's arguments."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # names in models need not fit the locale
            stream.reconfigure(errors="backslashreplace")
    typer.main.get_command(app).main(args=None if argv is None else list(argv), prog_name="octavo")


def _version(asked: bool) -> None:
    if asked:
        from octavo import __version__

        print(f"octavo {__version__}")  # noqa: T201
        raise typer.Exit


@app.callback(epilog=_EXIT_CODES)
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Dynamic int8 quantization for CPU inference: small, fast, verified, nothing silent."""


@app.command(epilog=_EXIT_CODES)
def quantize(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="IN",
            help="The float ONNX model; or module:factory, a callable without arguments that "
            "returns a float PyTorch model (modules in the current folder are found).",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="OUT",
            help="The file to write; one that exists is replaced once the new one is complete. "
            "Default: IN's name with .int8.onnx (.int8.native.onnx for target native, .fp16.onnx "
            "for float16; .safetensors for PyTorch) in the current directory, which must not exist "
            "unless --force is given.",
            show_default=False,
        ),
    ] = None,
    recipe: RecipeOption = "int8",
    exclude: Annotated[
        list[str],
        typer.Option(metavar="GLOB", help="Leave these layers float. May be repeated."),
    ] = [],  # noqa: B006
    only: Annotated[
        list[str],
        typer.Option(metavar="GLOB", help="Quantize these layers only. May be repeated."),
    ] = [],  # noqa: B006
    ops: OpsOption = [],  # noqa: B006
    inputs: Annotated[
        Path | None,
        typer.Option(
            metavar="DATA",
            help="Inputs for the check against the float model, .npz or .jsonl, one entry for "
            "each model input. Default: made up from the model's graph.",
            show_default=False,
        ),
    ] = None,
    cpu: CpuOption = Cpu.VNNI,
    target: TargetOption = Target.PORTABLE,
    format: FormatOption = Format.QOPERATOR,
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
            "--report", metavar="HTML", help="Write a page about the outcome.", show_default=False
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace OUT even where -o does not name it.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Report every layer by name.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON, and nothing else, on stdout.")
    ] = False,
) -> None:
    """Quantize IN and check the result against it.

    Layer names may be globs (quote them: '/encoder/*'). Whatever goes wrong, IN is as it was and
    no partial OUT is left. PyTorch models are written for octavo.torch.load and not checked;
    for them there are --recipe, --only, --exclude, --allow-nothing and what is about OUT or the
    report.
    """
    with _exit_codes():
        if cli_torch.names_factory(model):
            cli_torch.refuse_onnx_options(context, model)
            chosen = _recipe(recipe, ())
            name = model.rpartition(".")[2].rpartition(":")[2]
            out = output or _default_output(name, "safetensors", chosen, force)
            cli_tune.check_places(None, page, [out])
            made = cli_torch.quantize(
                model, out, chosen, only, exclude, allow_nothing=allow_nothing
            )
            _show(made, verbose, json, page)
            return
        chosen = _recipe(recipe, ops)
        suffix = "native.onnx" if target is Target.NATIVE else "onnx"
        out = output or _default_output(Path(model).stem, suffix, chosen, force)
        cli_tune.check_places(None, page, [Path(model), out, *([inputs] if inputs else [])])
        from octavo.onnx import quantize_dynamic
        from octavo.report.progress import progress_bar

        with progress_bar() as progress:
            report = quantize_dynamic(
                Path(model),
                out,
                nodes_to_quantize=list(only) or None,
                nodes_to_exclude=list(exclude) or None,
                use_external_data_format=external_data,
                recipe=chosen,
                target=target.value,
                cpu=cpu.value,
                quant_format=format.value,
                check_inputs=inputs,
                verify=not no_verify,
                progress=progress,
                allow_quantized=allow_quantized,
                allow_nothing=allow_nothing,
            )
        _show(report, verbose, json, page)


@app.command(epilog=_EXIT_CODES, short_help="Show a model's layers and what a recipe would do.")
def inspect(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(metavar="IN", help="The ONNX model, or module:factory of a PyTorch model."),
    ],
    recipe: RecipeOption = "int8",
    ops: OpsOption = [],  # noqa: B006
    cpu: CpuOption = Cpu.VNNI,
    target: TargetOption = Target.PORTABLE,
    format: FormatOption = Format.QOPERATOR,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")
    ] = False,
) -> None:
    """Show the layers of IN and what a recipe would do with each. Writes nothing."""
    with _exit_codes():
        if cli_torch.names_factory(model):
            cli_torch.refuse_onnx_options(context, model)
            found = cli_torch.inspect(model, _recipe(recipe, ()))
        else:
            from octavo.onnx import inspect as inspect_model

            chosen = _recipe(recipe, ops)
            found = inspect_model(
                Path(model),
                chosen,
                target=target.value,
                cpu=cpu.value,
                quant_format=format.value,
            )
        if json:
            print(json_module.dumps(found.to_dict(), indent=2))  # noqa: T201
            return
        from octavo.report.inspection import print_inspection
        from octavo.report.text import console

        print_inspection(found, console())


@app.command(epilog=_EXIT_CODES, short_help="Search the fastest recipe that keeps the accuracy.")
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
            help="The float ONNX model, or module:factory of a PyTorch model.",
            show_default=False,
        ),
    ] = None,
    evaluate: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Takes the model (an onnxruntime.InferenceSession, a torch module) and returns "
            "its accuracy, a number or a dict with one named accuracy. Modules in the current "
            "folder are found.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DATA",
            help="Inputs and labels for the file's metric, and for static calibration: .npz, "
            ".jsonl, .csv or .parquet. Without a metric, agreement with the float model on them.",
            show_default=False,
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            "--batch-size",
            min=1,
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
            help="Write the best recipe there, for octavo quantize --recipe.",
            show_default=False,
        ),
    ] = None,
    recipe: RecipeOption = "int8",
    ops: OpsOption = [],  # noqa: B006
    shape: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=1x128,..",
            help="Shapes of the inputs that are timed (and made up). Several are timed one by one.",
        ),
    ] = [],  # noqa: B006
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
            min=1,
            metavar="N",
            help="Threads of ONNX Runtime's sessions. Default: its own, one a core.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
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
            "tcp://host:8786. Model, data and modules must have the same paths there.",
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
        typer.Option(metavar="HTML", help="Write a page about the search.", show_default=False),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace OUT even where -o does not name it.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, and nothing else, on stdout.")
    ] = False,
) -> None:
    """Search for the fastest recipe that keeps the accuracy, as CONF says.

    With neither --evaluate nor a metric, outputs are compared with the float model's. Every trial
    runs in a process of its own, which is ended at the file's timeout. Exits with 0 only if the
    criterion is met and OUT is written.
    """
    with _exit_codes():
        result = cli_tune.run(
            conf,
            model=model,
            base=_recipe(recipe, ops),
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
            target=None if target is None else target.value,
            cpu=None if cpu is None else cpu.value,
            threads=threads,
            force=force,
        )
        cli_tune.show(result, json=json)
        if result.status.value == "interrupted":
            raise typer.Exit(INTERRUPTED)
        if not result.status.met:
            raise typer.Exit(NOT_MET)
        if not result.output:
            raise typer.Exit(OutputError.exit_code)


@app.command(
    "convert-target",
    epilog=_EXIT_CODES,
    short_help="Convert a quantized model to the other target.",
)
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
            help="The file to write. Default: IN's name with .portable.onnx or .native.onnx in "
            "the current directory, which must not exist unless --force is given.",
            show_default=False,
        ),
    ] = None,
    cpu: Annotated[
        Cpu | None,
        typer.Option("--cpu", help="Of portable files: vnni (the default) or any; see quantize."),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(
            metavar="DATA",
            help="Inputs for the comparison of IN and OUT, .npz or .jsonl. Default: made up.",
            show_default=False,
        ),
    ] = None,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="Do not run IN and OUT and compare their outputs.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace OUT even where -o does not name it.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON, and nothing else, on stdout.")
    ] = False,
) -> None:
    """Convert a quantized model to the other target: the same integers, no float model needed."""
    with _exit_codes():
        done = cli_convert.convert(
            model,
            output,
            to.value,
            cpu=None if cpu is None else cpu.value,
            inputs=inputs,
            verify=not no_verify,
            force=force,
        )
        cli_convert.show(done, json=json)


@app.command(epilog=_EXIT_CODES, short_help="Compare a quantized model with the float one.")
def compare(
    floating: Annotated[
        str,
        typer.Argument(
            metavar="FLOAT",
            help="The float ONNX model, or module:factory of a PyTorch model.",
        ),
    ],
    quantized: Annotated[
        Path,
        typer.Argument(
            metavar="INT8", help="What was made of it: .onnx of either target, or .safetensors."
        ),
    ],
    inputs: Annotated[
        Path | None,
        typer.Option(
            metavar="DATA", help="Inputs, .npz or .jsonl. Default: made up.", show_default=False
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Name every layer.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")
    ] = False,
) -> None:
    """Compare INT8 with FLOAT: outputs, and each quantized layer, the one to blame first.

    A layer's error alone is that on the float model's inputs to it; accumulated is what the layers
    before it add. Nothing is quantized here: the numbers are those of INT8 as it is.
    """
    with _exit_codes():
        found = cli_compare.compare(floating, quantized, inputs)
        cli_compare.show(found, verbose=verbose, json=json)


@app.command(epilog=_EXIT_CODES, short_help="Time models in turns and compare them.")
def bench(
    models: Annotated[
        list[str],
        typer.Argument(metavar="A [B ..]", help="ONNX files, float or int8, of either target."),
    ],
    shape: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=1x128,..",
            help="Shapes of the model's inputs, which are made up. May be repeated: each is timed. "
            "Default: guessed from A's graph.",
        ),
    ] = [],  # noqa: B006
    threads: Annotated[
        str | None,
        typer.Option(
            metavar="N,..",
            help="Threads of a session; each number is timed. Default: as ONNX Runtime chooses.",
            show_default=False,
        ),
    ] = None,
    against: Annotated[
        Against | None,
        typer.Option(
            help="ort: quantize A with onnxruntime.quantization.quantize_dynamic too, in a "
            "temporary folder, and time that.",
            show_default=False,
        ),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(
            help="About how long each shape and number of threads is timed at most; it ends "
            "earlier once all is clear. Models that take seconds to open or to run take longer.",
        ),
    ] = 30.0,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")
    ] = False,
) -> None:
    """Time models in turns (A B B A ..), each opened many times, and compare them pair by pair.

    Of each pair: the time of the later one over that of the earlier one, with a 99% interval, and
    whether there is a difference, none, or it was too noisy to tell. Of each model: latency,
    throughput, the time a session takes to open, peak memory and file size.
    """
    with _exit_codes():
        found = cli_bench.run(
            models,
            shapes=shape,
            threads=threads,
            against_ort=against is Against.ORT,
            seconds=seconds,
        )
        cli_bench.show(found, json=json)


@app.command(epilog=_EXIT_CODES, short_help="Show what this machine has, and what is missing.")
def doctor(
    model: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A quantized model to match with this machine."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")
    ] = False,
) -> None:
    """Show versions, instruction sets, the kernels that would run, and what is missing.

    Exits with 7 if something that is needed is missing or too old, else 0, also with warnings.
    """
    with _exit_codes():
        from octavo.files.metadata import metadata
        from octavo.measure.doctor import diagnose

        said = None if model is None else metadata(model)
        diagnosis = diagnose(None if model is None else str(model), said)
        if json:
            print(json_module.dumps(diagnosis.to_dict(), indent=2))  # noqa: T201
        else:
            from octavo.report.doctor import print_diagnosis
            from octavo.report.text import console

            print_diagnosis(diagnosis, console())
        if not diagnosis.ok:
            raise typer.Exit(SOMETHING_MISSING)


@contextlib.contextmanager
def _exit_codes() -> Iterator[None]:
    """Ends the process with one line and the error's code; what is unexpected passes through."""
    try:
        yield
    except OctavoError as error:
        from octavo.report.text import clean

        message = "\n".join(clean(line) for line in str(error).split("\n"))
        print(f"error: {message}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)  # noqa: T201
        raise typer.Exit(INTERRUPTED) from None


def _show(report: Report, verbose: bool, json: bool, page: Path | None) -> None:
    if page is not None:
        from octavo.report.html import report_html, write_html

        write_html(report_html(report), page)
    if json:
        print(report.to_json())  # noqa: T201
        return
    from octavo.report.table import print_report
    from octavo.report.text import console

    print_report(report, console(), verbose)


def _recipe(given: str, ops: Sequence[str]) -> Recipe:
    """The preset or file, with a rule for each of `ops`."""
    from octavo.recipe import PRESETS, load_recipe, preset

    path = Path(given)
    if given in PRESETS:
        recipe = preset(given)
    elif path.suffix in (".yaml", ".yml") or path.exists():
        recipe = load_recipe(path)
    else:
        raise RecipeError(
            f"--recipe {given!r} is neither a preset nor a file." + did_you_mean(given, PRESETS)
        )
    return _with_ops(recipe, [op for part in ops for op in part.split(",") if op])


def _with_ops(recipe: Recipe, ops: Sequence[str]) -> Recipe:
    """`recipe` with `ops` quantized by its default scheme.

    The rules by layer name with which a recipe begins stay stronger, and so do those for products
    of two activations, whose operator is MatMul too.
    """
    if not ops:
        return recipe
    from octavo.onnx import supported_ops
    from octavo.recipe import Kind, Rule

    if recipe.default.is_float:
        raise OptionError(
            f"--ops {','.join(ops)} asks for recipe {recipe.name!r}'s default scheme, which is "
            "float; add a rule with `op` and a scheme to the recipe instead"
        )
    known = supported_ops()
    rules = []
    for op in ops:
        named = [name for name in known if op in (name, name.rpartition(".")[2])]
        if not named:
            raise OptionError(f"--ops: unknown operator type {op!r}.{did_you_mean(op, known)}")
        rules += [Rule(recipe.default, op=name) for name in named]
    by_name = list(itertools.takewhile(lambda r: r.kind is None and r.op is None, recipe.rules))
    products = [r for r in recipe.rules if r.kind is Kind.ACTIVATION_MATMUL]
    return recipe.with_rules_first(*by_name, *products, *rules)


def _default_output(stem: str, suffix: str, recipe: Recipe, force: bool) -> Path:
    from octavo.core.qtype import QType

    weight = recipe.default.weight
    kind = "fp16" if weight is not None and weight.qtype is QType.FLOAT16 else "int8"
    out = Path(f"{stem}.{kind}.{suffix}")
    if out.exists() and not force:
        raise OutputError(f"{out} exists; name it with -o or give --force to replace it")
    return out
