"""Which loops of a disassembly are looked at."""

from __future__ import annotations

import pytest

from tests.clang.run import Instruction, loops

pytestmark = pytest.mark.slow

SUM = "vpdpbusd %zmm1,%zmm2,%zmm3"
FUNCTION: list[Instruction] = [
    (0x10, "xor %eax,%eax"),
    (0x12, SUM),
    (0x18, "inc %rax"),
    (0x1B, "jne    12 <f+0x2>"),
    (0x1D, "jmp    20 <f+0x10>"),
    (0x20, "ret"),
]


def test_a_loop_ends_with_a_jump_backwards() -> None:
    assert list(loops(FUNCTION)) == [[SUM, "inc %rax", "jne    12 <f+0x2>"]]


def test_a_loop_of_many_branches_is_none() -> None:
    branches: list[Instruction] = [(0x13 + i, "je     1b <f+0xb>") for i in range(3)]
    assert not list(loops([*FUNCTION[:2], *branches, *FUNCTION[3:]]))
