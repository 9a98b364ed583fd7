"""Calls on the tables of kernels that this processor runs: all give the bits of the scalar one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from octavo.core import kernels
from tests.core.statement import assert_same_bits


@contextmanager
def table(name: str) -> Iterator[None]:
    before = kernels.isa()
    kernels.use_isa(name)
    try:
        yield
    finally:
        kernels.use_isa(before)


def on_reference(call: Callable[[], Any]) -> Any:
    with table("reference"):
        return call()


def on_every_table(compute: Callable[[int], Any], threads: Sequence[int] = (1, 2, 3)) -> Any:
    """Return what `compute(1)` gives with the scalar kernels.

    On each table and for each number of threads it has to give the same bits.
    """
    expected = on_reference(lambda: compute(1))
    for name, count in itertools.product(kernels.isas(), threads):
        with table(name):
            found = compute(count)
        try:
            assert_all_same(found, expected)
        except AssertionError as error:
            raise AssertionError(f"{name}, {count} threads: {error}") from error
    return expected


def assert_all_same(found: Any, expected: Any) -> None:
    """The same bits in arrays, and in sequences of them; None is None."""
    if found is None or expected is None:
        assert found is expected
    elif isinstance(expected, list | tuple):
        for one, other in zip(found, expected, strict=True):
            assert_all_same(one, other)
    else:
        assert_same_bits(found, expected)
