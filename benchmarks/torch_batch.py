"""What one row of a batch does to the results of the others: rows scaled by 100 as outliers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks import torch_variants
from benchmarks.results import Row
from benchmarks.torch_variants import FOUR, OCTAVO

if TYPE_CHECKING:
    import torch

ROWS, WIDTH, STEPS, SCALE = 8, 384, 20, 100.0
SECTION = "A batch with one row scaled 100x: the results of the others"


@dataclass(frozen=True)
class Effect:
    """Elements of the other rows that changed, and their error without and with the outlier.

    The error is the norm of the difference from the float module's as a share of its norm.
    """

    changed: int
    elements: int
    error: float
    error_beside: float


def effect(module: torch.nn.Module, exact: torch.nn.Module, x: torch.Tensor) -> Effect:
    """Of scaling the row in the middle of `x`, whose rows lie along the first axis."""
    import torch

    outlier = x.clone()
    outlier[ROWS // 2] *= SCALE
    others = torch.arange(ROWS) != ROWS // 2
    with torch.inference_mode():
        want, plain, beside = (
            _output(m, given)[others] for m, given in ((exact, x), (module, x), (module, outlier))
        )
    norm = float(want.norm())
    errors = (float((y - want).norm()) / norm for y in (plain, beside))
    return Effect(int((plain != beside).sum()), plain.numel(), *errors)


def _output(module: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    found = module(x)
    states: torch.Tensor = found[0] if isinstance(found, tuple) else found
    return states


def models() -> Mapping[str, tuple[torch.nn.Module, torch.Tensor]]:
    """A stack of Linears as in MiniLM and an LSTM, each with a batch of 8 rows."""
    import torch

    torch.manual_seed(0)
    wide = 4 * WIDTH
    stack = torch.nn.Sequential(
        *(torch.nn.Linear(WIDTH, WIDTH), torch.nn.LayerNorm(WIDTH)),
        *(torch.nn.Linear(WIDTH, wide), torch.nn.GELU(), torch.nn.Linear(wide, WIDTH)),
    )
    recurrent = torch.nn.Sequential(torch.nn.LSTM(WIDTH, WIDTH, batch_first=True))
    return {
        "stack of Linears": (stack.eval(), torch.randn(ROWS, WIDTH)),
        "LSTM": (recurrent.eval(), torch.randn(ROWS, STEPS, WIDTH)),
    }


def batch_rows() -> Iterator[Row]:
    """Octavo's other rows keep every bit; torch.ao's error beside them."""
    for what, (exact, x) in models().items():
        made, refused = torch_variants.every(FOUR, exact)
        for name in FOUR[1:]:
            changed, note = math.nan, refused.get(name, "")
            if name in made:
                found = effect(made[name], exact, x)
                changed = found.changed / found.elements
                note = f"error {found.error:.4f} without the scaled row, {found.error_beside:.4f} "
                note += f"with it; {found.elements} elements"
            yield Row(
                f"{what}: {name}: share of elements changed",
                changed,
                at_most=0 if name == OCTAVO else None,
                section=SECTION,
                note=note,
            )
