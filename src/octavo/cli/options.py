"""What commands share: options, the recipe that they mean, and how errors end the process."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.core.form import Cpu, QuantFormat, Target
from octavo.errors import (
    INTERRUPTED,
    OctavoError,
    OptionError,
    RecipeError,
    did_you_mean,
)
from octavo.front_ends import names_factory

if TYPE_CHECKING:
    from octavo.recipe import Recipe
    from octavo.results.page import Result

NOT_MET = 8
UNCHECKED = 10


class Approach(str, Enum):
    """Values of --approach."""

    DYNAMIC = "dynamic"
    STATIC = "static"
    AUTO = "auto"


class Against(str, Enum):
    """Values of --against."""

    ORT = "ort"


class To(str, Enum):
    """Values of --to for checkpoints."""

    TORCH = "torch"
    ONNX = "onnx"
    NATIVE = "native"


def at_least_1(value: int | None) -> int | None:
    """Return the value of an option that counts; raise BadParameter if the value is below 1."""
    if value is not None and value < 1:
        raise typer.BadParameter(f"{value} is not a whole number above 0; give 1 or more")
    return value


RecipeOption = Annotated[
    str,
    typer.Option(
        "--recipe",
        metavar="PRESET|FILE",
        help="A preset (int8, int8-per-tensor, int8-accurate, int8-block, int4, int4-128, "
        "int4-mixed, float16) or a YAML file.",
    ),
]
OpsOption = Annotated[
    list[str],
    typer.Option(
        "--ops",
        metavar="OP[,OP]",
        help="Quantize these operator types too, with the recipe's default scheme (Conv, for "
        "example, is float by default). May be repeated. Default: those of the recipe.",
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
ToOption = Annotated[
    To,
    typer.Option(
        "--to",
        help="Of checkpoints. torch: a folder that transformers' from_pretrained opens. onnx: ONNX "
        "files, configuration and tokenizer for optimum and sentence-transformers, of target "
        "portable. native: the same of target native.",
    ),
]
FormatOption = Annotated[
    QuantFormat,
    typer.Option(
        "--format",
        help="qoperator: integer operators, for ONNX Runtime. qdq: "
        "DynamicQuantizeLinear/DequantizeLinear pairs, per tensor, for other runtimes.",
    ),
]
NOT_BOUNDED = (
    "Each model is opened five times at least, however long that takes. Making up inputs, and "
    "measuring memory in a process for each model, come on top, as"
)
"""What `--seconds` does not bound; more may follow."""
QUANTIZED_HELP = "What was made of it: .onnx of either target, .safetensors, or a folder."
ComparedInputsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DATA",
        help="Inputs to compare on, .npz or .jsonl; of checkpoints a text a line of a .jsonl, too. "
        "Default: made up.",
    ),
]
CustomOpsOption = Annotated[
    list[str],
    typer.Option(
        "--custom-ops",
        metavar="FILE",
        help="A shared library of operators that ONNX Runtime has not, to run ONNX models with. "
        "May be repeated. Default: none.",
    ),
]
TimedThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads",
        callback=at_least_1,
        metavar="N",
        help="Threads of the sessions that are timed. Default: as ONNX Runtime chooses.",
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace OUT where it exists.")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")
]


def show(result: Result, *, json: bool, verbose: bool = False) -> None:
    """Print the result as a page, or as JSON alone."""
    if json:
        print(result.to_json())  # noqa: T201
        return
    from octavo.report import terminal

    terminal.show(result, terminal.console(), verbose)


_NO_CHOICES = frozenset("model output page shape threads force verbose json".split())


def given_options(context: typer.Context) -> tuple[tuple[str, str], ...]:
    """Return the given options that say what to make, with their values; "" stands for a switch."""
    found = []
    for parameter in context.command.params:
        name = parameter.name or ""
        source = context.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE" or name in _NO_CHOICES:
            continue
        value, option = context.params[name], max(parameter.opts, key=len)
        for one in value if isinstance(value, (list, tuple)) else [value]:
            found.append((option, "" if one is True else str(getattr(one, "value", one))))
    return tuple(found)


def end_if_unchecked(status: str) -> None:
    """End the process with exit code UNCHECKED if `status` says that nothing checked the output."""
    if status == "unchecked":
        raise typer.Exit(UNCHECKED)


def shape_of(text: str) -> dict[str, tuple[int, ...]]:
    """Read `input_ids=1x128,attention_mask=1x128` as shapes by name."""
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
            raise OptionError(
                f"--shape {text!r}: {name!r} is there twice; name each input once, and repeat "
                "--shape for another set of shapes"
            )
        found[name] = tuple(int(d) for d in sizes)
    return found


@contextlib.contextmanager
def exit_codes() -> Iterator[None]:
    """End the process with one line and the error's code; unexpected errors pass through."""
    try:
        _check_environment()
        yield
    except OctavoError as error:
        from octavo.results.words import clean

        message = "\n".join(clean(line) for line in str(error).split("\n"))
        print(f"error: {message}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)  # noqa: T201
        raise typer.Exit(INTERRUPTED) from None


@contextlib.contextmanager
def operators(custom_ops: Sequence[str], *models: str) -> Iterator[None]:
    """Give sessions that are opened in this context the operators of the libraries `custom_ops`.

    Raises OptionError for what is no such library, and where one of `models` is a PyTorch model.
    """
    if not custom_ops:
        yield
        return
    for model in models:
        if names_factory(model):
            raise OptionError(
                f"--custom-ops is for ONNX models; {model} is a PyTorch model: leave it out"
            )
    from octavo.onnx.custom_ops import CustomOps

    with CustomOps.of(custom_ops).in_force():
        yield


def _check_environment() -> None:
    """Raise OptionError for a wrong OCTAVO_ISA before the work, not in its middle."""
    if os.environ.get("OCTAVO_ISA"):
        from octavo.core import kernels

        try:
            kernels.isa()
        except ValueError as error:
            raise OptionError(str(error)) from None


def chosen_recipe(given: str, ops: Sequence[str] = ()) -> Recipe:
    """Return the recipe of a preset or file, with a rule for each of `ops`."""
    from octavo.recipe import PRESETS
    from octavo.recipe.yaml_files import recipe_of

    path = Path(given)
    if given not in PRESETS and path.suffix not in (".yaml", ".yml") and not path.exists():
        raise RecipeError(
            f"--recipe {given!r} is neither a preset nor a file." + did_you_mean(given, PRESETS)
        )
    recipe = recipe_of(given if given in PRESETS else path)
    return _with_ops(recipe, [op for part in ops for op in part.split(",") if op])


def chosen_recipes(given: str | None, ops: Sequence[str] = ()) -> tuple[Recipe, ...]:
    """Return `given` as a recipe, or the presets a search may start from, with rules for `ops`."""
    from octavo.tune.arguments import checked_recipes

    if given is not None:
        return (chosen_recipe(given, ops),)
    return tuple(chosen_recipe(recipe.name, ops) for recipe in checked_recipes(None))


def _with_ops(recipe: Recipe, ops: Sequence[str]) -> Recipe:
    """Return `recipe` with the operators `ops` quantized by its default scheme.

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
