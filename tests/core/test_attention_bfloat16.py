"""Attention in products of bfloat16: its bounds, its definition, and the same bits everywhere."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from octavo.core import kernels
from tests.core.attention_statement import Fields, random
from tests.core.statement import assert_same_bits
from tests.core.tables import on_every_table
from tests.core.test_attention_fields import EDGES, FIELDS, noise, padding, shown
from tests.fresh import ROOT, python

LEAST = np.float32(2.0**-126)
"""The least normal float32."""


def rounded(x: np.ndarray) -> np.ndarray:
    """To bfloat16, to the nearest, halves to even."""
    bits = x.view(np.uint32).astype(np.uint64)
    up = bits + 0x7FFF + (bits >> 16 & 1)
    return (up >> 16 << 16).astype(np.uint32).view(np.float32)


def columns(x: Fields) -> int:
    return x.q.shape[2] * x.q.shape[1] // x.k.shape[1]


def tiny(queries: int, keys: int, depth: int) -> Fields:
    """Products, scores and sums on both sides of the least normal number."""
    x = random(1, 2, queries, keys, depth, scale=2.0**126)
    size = np.exp2(np.random.default_rng(3).integers(-8, 3, x.v.shape)).astype(np.float32)
    return replace(
        x,
        q=x.q * np.float32(2.0**-60),
        k=x.k * np.float32(2.0**-66),
        v=x.v * size * LEAST,
    )


CASES = {
    **{name: replace(x, bfloat16=True) for name, x in FIELDS.items()},
    **{
        name: replace(x, bfloat16=True)
        for name, x in {
            "odd depths": random(1, 2, 33, 257, 7, value_depth=3),
            "one key": random(2, 1, 20, 1, 16),
            "windows from odd keys": random(1, 2, 70, 600, 16, causal=True, offset=530, window=301),
            "odd last keys": random(1, 1, 19, 513, 80, causal=True, offset=260),
            "subnormal": tiny(20, 40, 9),
            "few at a time": random(40, 2, 18, 300, 64, mask=padding(40, 300, *range(1, 41))),
        }.items()
    },
}
cases = pytest.mark.parametrize("x", CASES.values(), ids=CASES)


def assert_near(x: Fields, found: np.ndarray) -> None:
    """Against float64 over rounded operands: of weights, each is off by half a bfloat16 step.

    Weights and the sum that divides them are rounded alike, so the result moves by 2^-9 of what
    each value weighs, and as much of the sum.
    """
    few = columns(x) <= 16
    q, k, v = (a if few else rounded(np.ascontiguousarray(a)) for a in (x.q, x.k, x.v))
    expected = replace(x, q=q, k=k, v=v).stated()
    size = replace(x, q=q, k=k, v=np.abs(v)).stated()
    allowed = 3e-6 + (2e-5 if few else 2.0**-8 + 1e-4) * size
    assert (np.abs(found - expected) <= allowed).all()


@cases
def test_every_table_is_as_near_as_rounding_allows(x: Fields) -> None:
    found = on_every_table(x.run, (1, 3))
    if x is not CASES["subnormal"]:
        assert_near(x, found)


# Whether a table uses AVX512_BF16 is settled once a process.
BITS = """
import hashlib
from octavo.core import kernels
from tests.core.test_attention_bfloat16 import CASES
print(kernels.has_bfloat16_products())
print(hashlib.sha256(b"".join(case.run().tobytes() for case in CASES.values())).hexdigest())
"""


def test_the_instruction_gives_the_bits_of_other_ones() -> None:
    def printed(how: str) -> list[str]:
        return python(BITS, env={**os.environ, "OCTAVO_BFLOAT16": how}, cwd=ROOT).stdout.split()

    by_instruction, digest = printed("")
    assert (by_instruction == "True") == ("avx512bf16" in kernels.cpu_features())
    assert printed("emulated") == ["False", digest]


def mixed(values: list[float]) -> float:
    """What 17 queries that weigh all keys alike make of these values."""
    v = np.array(values, np.float32).reshape(1, 1, -1, 1)
    zeros = np.zeros((1, 1, 17, 2), np.float32)
    x = Fields(zeros, np.zeros((1, 1, len(values), 2), np.float32), v, bfloat16=True)
    found = x.run().ravel()
    assert (found == found[0]).all()
    return float(found[0])


def test_of_a_pair_the_second_is_added_first() -> None:
    assert mixed([2.0**24, 0, -(2.0**24), 1]) == 0  # 2^24 + 1 is 2^24 in float32
    assert mixed([2.0**24, 0, 1, -(2.0**24)]) == 0.25


def test_operands_and_sums_that_are_subnormal_are_zero() -> None:
    least = float(LEAST)
    assert mixed([least * 1.5, -least]) == 0
    assert mixed([-least, least * 1.5]) == 0
    assert mixed([least * 3, -least]) == least
    assert mixed([least * 0.75, least * 0.75]) == 0
    few = replace(random(1, 1, 1, 1, 2), bfloat16=True, v=np.full((1, 1, 1, 1), LEAST / 2))
    assert few.run().ravel()[0] == LEAST / 2


def test_halves_round_to_even() -> None:
    assert mixed([1 + 2.0**-8]) == 1
    assert mixed([1 + 3 * 2.0**-8]) == 1 + 2.0**-6
    assert mixed([1 + 2.0**-8 + 2.0**-20]) == 1 + 2.0**-7


@pytest.mark.parametrize("queries", EDGES)
def test_all_edges_of_tiles(queries: int) -> None:
    for keys, depth in ((3, 5), (16, 16), (21, 40), (257, 64), (6, 130)):
        x = replace(random(1, 2, queries, keys, depth, value_depth=queries), bfloat16=True)
        assert_near(x, x.run())


def test_an_item_does_not_depend_on_the_batch() -> None:
    x = CASES["few at a time"]
    last = replace(x, q=x.q[39:], k=x.k[39:], v=x.v[39:], mask=x.mask[39:])  # type: ignore[index]
    assert_same_bits(x.run(2)[39:], last.run())


def test_keys_that_do_not_count_have_no_part() -> None:
    x = replace(random(1, 2, 20, 40, 16, mask=shown(20, 40), bias=noise(2, 20, 40)), bfloat16=True)
    hidden = ~np.broadcast_to(shown(20, 40), (20, 40)).any(0)
    hidden[7] = True
    mask = shown(20, 40) & ~hidden
    v = x.v.copy()
    v[:, :, hidden] = 1e30
    assert_same_bits(replace(x, v=v, mask=mask).run(), replace(x, mask=mask).run())
