"""What quantizers call the bits and the blocks of MatMulNBits, and which recipe has them here."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from octavo.errors import OptionError

Call = TypeVar("Call", bound=Callable[..., Any])

FOUR_BITS = (
    "weights of 4 bits come in blocks, by a recipe: recipe='int4' (--recipe int4) has blocks of 32 "
    "weights, 'int4-128' of 128"
)
_ELSEWHERE = ("bits", "nbits", "block_size")


def refuse_block_options(names: Iterable[str]) -> None:
    """Raises OptionError where one of `names` is an argument of other quantizers."""
    for name in names:
        if name in _ELSEWHERE:
            raise OptionError(f"{name}: there is no such argument; {FOUR_BITS}")


def leads_to_recipes(call: Call) -> Call:
    """Has `call` refuse such arguments by name, instead of as a typing error."""

    @functools.wraps(call)
    def asked(*arguments: Any, **options: Any) -> Any:
        refuse_block_options(options)
        return call(*arguments, **options)

    return cast("Call", asked)
