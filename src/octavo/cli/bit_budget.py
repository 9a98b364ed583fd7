"""How much a mixed recipe may take: `--bits`, `--size`, and `--max-error`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from octavo.errors import OptionError, TooFewBitsError, VerificationError

if TYPE_CHECKING:
    from octavo.recipe import Recipe
    from octavo.results.inspection import Inspection
    from octavo.results.report import Report

BitsOption = Annotated[
    float | None,
    typer.Option(
        "--bits",
        metavar="N",
        help="With --recipe int4-mixed: bits a weight of linear layers and tables, scales and all "
        "that belongs to them included. Default: about 5.",
    ),
]
SizeOption = Annotated[
    str,
    typer.Option(
        "--size",
        metavar="90MB",
        help="With --recipe int4-mixed: how large the model may become. Default: as --bits says.",
        show_default=False,
    ),
]
MaxErrorOption = Annotated[
    float | None,
    typer.Option(
        "--max-error",
        metavar="E",
        help="The error of outputs that the check accepts. With --recipe int4-mixed, and neither "
        "--bits nor --size, the fewest bits of a few that keep to it. Default: the recipe's.",
    ),
]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}
_LADDER = (4.5, 5.0, 5.5, 6.0, 7.0, 9.0)


def limited(
    recipe: Recipe,
    bits: float | None,
    size: str,
    max_error: float | None,
    inspect: Callable[[Recipe], Inspection],
) -> Recipe:
    """Limit `recipe` as the options say; `inspect` tells what a recipe would do with the model.

    Raises OptionError where `recipe` mixes no bits, or the options contradict each other.
    """
    if max_error is not None:
        recipe = replace(recipe, max_error=max_error)
    if bits is None and not size:
        return recipe
    option = "--size" if size else "--bits"
    if recipe.mix is None:
        raise OptionError(
            f"{option} is for recipes that mix bits, and {recipe.name} does not: give "
            "--recipe int4-mixed"
        )
    if bits is not None and size:
        raise OptionError("--bits and --size: give one of them; both say how large weights become")
    if bits is not None:
        return replace(recipe, mix=replace(recipe.mix, bits=bits, size=None))
    from octavo.report.terminal import working

    with working("counting the weights"):
        found = inspect(recipe)
    rest = found.model_bytes - sum(found.weight_bytes or [d.layer.bytes for d in found.decisions])
    allowed = _bytes(size) - max(rest, 0)
    if allowed <= 0:
        raise OptionError(
            f"--size {size}: what the model holds beside its layers takes {rest} bytes already; "
            "allow more"
        )
    mixed = replace(recipe, mix=replace(recipe.mix, bits=None, size=allowed))
    try:
        inspect(mixed)
    except TooFewBitsError as error:
        least = max(rest, 0) + error.least
        raise OptionError(
            f"--size {size}: the model takes {least} bytes or more; allow that many"
        ) from None
    return mixed


def fewest_bits(
    recipe: Recipe, max_error: float | None, make: Callable[[Recipe], Report]
) -> Report:
    """Return `make(recipe)`; if only `max_error` limits the mix, with the fewest bits that pass."""
    mix = recipe.mix
    if max_error is None or mix is None or mix.is_limited:
        return make(recipe)
    for bits in _LADDER[:-1]:
        try:
            return make(replace(recipe, mix=replace(mix, bits=bits)))
        except (VerificationError, TooFewBitsError):
            continue  # with more of them
    return make(replace(recipe, mix=replace(mix, bits=_LADDER[-1])))


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?", text.strip(), re.IGNORECASE)
    if found is None or not float(found[1]):
        raise OptionError(f"--size {text!r} is no size; write it as 90MB, 1.5GB or 64MiB")
    return int(float(found[1]) * _UNITS[(found[2] or "").lower()])
