"""What benchmarks.cycles_arm makes of a trace; the tools that it calls need not be there."""

from __future__ import annotations

import pytest

from benchmarks import cycles_arm
from benchmarks.cycles_arm import PRODUCTS, Instruction, Program


class Listed(Program):
    """Instructions from address 0 on, four bytes each."""

    def __init__(self, *instructions: Instruction) -> None:
        self.instructions = {4 * i: one for i, one in enumerate(instructions)}


LISTED = Listed(
    ("mov", "x0, x1"),
    ("ldr", "q0, [x1], #16"),
    ("sdot", "v1.4s, v0.16b, v2.4b[1]"),
    ("b.ne", "4 <tile+0x4>  // b.any"),
    ("sdot", "v1.4s, v0.16b, v2.4b[1]"),
    ("cbnz", "x3, 0 <tile>"),
    ("ret", ""),
)


def test_the_loop_is_the_innermost_one_that_multiplies_most() -> None:
    turn = [4, 8, 12]
    passed = [0, *turn, *turn, *turn, 16, 20, 0, *turn, *turn, *turn, 16, 20, 24]
    assert cycles_arm.loop(LISTED, passed, "sdot") == turn


def test_what_was_jumped_over_is_in_no_loop() -> None:
    """A return may go backwards, over as many multiplications as there are in a program."""
    more = Listed(*LISTED.instructions.values(), *[("sdot", "v1.4s, v0.16b, v2.4b[1]")] * 9)
    turn = [4, 8, 12]
    assert cycles_arm.loop(more, [*turn, *turn, 16, 20, 24, 60, 24], "sdot") == turn


@pytest.mark.parametrize(
    ("instruction", "shown"),
    [
        (("b.ne", "4 <tile+0x4>  // b.any"), "b.ne #0"),
        (("cbnz", "x3, 0 <tile>"), "cbnz x3, #0"),
        (("tbz", "w3, #1, 40 <tile+0x40>"), "tbz w3, #1, #0"),
        (("adrp", "x3, 4a0000 <zeros>"), "adrp x3, #0"),
        (("bl", "40 <memcpy>"), ""),
        (("ldr", "q0, [x1], #16"), "ldr q0, [x1], #16"),
    ],
)
def test_jumps_go_nowhere(instruction: Instruction, shown: str) -> None:
    assert cycles_arm._assembly(*instruction) == shown


def test_products_count_the_multiplications_of_their_table() -> None:
    for product in PRODUCTS:
        name, size = product.multiplies
        assert product.m * product.k * product.n % size == 0
        assert (size == 32) == name.startswith("smmla") == (product.table == "neon_i8mm")
        assert product.arguments[0] == product.table
