"""What other quantizers call weights of 4 bits and their blocks, and which recipe has them here."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from octavo.errors import OptionError

Call = TypeVar("Call", bound=Callable[..., Any])

_FOUR_BITS = (
    "weights of 4 bits come in blocks, by a recipe: recipe='int4' (--recipe int4) has blocks of 32 "
    "weights, 'int4-128' of 128"
)
_OPTIONS = frozenset(
    "bits nbits n_bits num_bits w_bits wbits weight_bits load_in_4bit blocksize block_size "
    "groupsize group_size q_group_size accuracy_level algo_config".split()
)
_DTYPES = frozenset("int4 uint4 qint4 quint4 quint4x2 nf4 fp4 float4 float4_e2m1fn_x2".split())


def refuse_block_options(names: Iterable[str]) -> None:
    """Raise OptionError where one of `names` is an argument of other quantizers."""
    for name in names:
        if name in _OPTIONS:
            raise OptionError(f"{name}: there is no such argument; {_FOUR_BITS}")


def refuse_four_bits(argument: str, dtype: Any) -> None:
    """Raise OptionError where `dtype`, an enum, a torch.dtype or a name, is one of 4 bits."""
    name = str(getattr(dtype, "name", dtype)).rpartition(".")[2]
    if name.lower() in _DTYPES:
        raise OptionError(f"{argument} {name!r}: {_FOUR_BITS}")


def leads_to_recipes(call: Call) -> Call:
    """Has `call` refuse such arguments by name, instead of as a typing error."""

    @functools.wraps(call)
    def asked(*arguments: Any, **options: Any) -> Any:
        refuse_block_options(options)
        return call(*arguments, **options)

    return cast("Call", asked)
