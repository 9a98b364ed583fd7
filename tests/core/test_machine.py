"""What `octavo.core.kernels` says of the machine, and what parts of a layer cost on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from octavo.core import kernels


def test_what_the_machine_says() -> None:
    names = kernels.isas()
    assert names[-1] == "reference"
    assert kernels.isa() in names
    assert kernels.peak_gops("reference") == 0
    for name in names[:-1]:
        assert 5 < kernels.peak_gops(name, 0.01) < 100_000
    with pytest.raises(ValueError, match="threads: 0"):
        kernels.peak_gops(names[0], threads=0)
    data = np.ones(1 << 22, np.uint8)
    assert 0.05 < kernels.read_gbps(data) < 10_000
    assert 0.05 < kernels.read_gbps(data.view(np.float32), threads=2) < 10_000
    with pytest.raises(ValueError, match="array: strides"):
        kernels.read_gbps(data[::2])
    with pytest.raises(AttributeError, match="has no attribute 'quantize_columns'; it has"):
        kernels.quantize_columns  # noqa: B018


@pytest.mark.real_time
def test_two_cores_do_twice_as_much() -> None:
    name = kernels.isas()[0]
    if name == "reference":
        pytest.skip("NOT TESTED: the reference has no loop over registers")
    for _ in range(50):  # a host may run both cores on one for a while
        ratio = kernels.peak_gops(name, 0.01, threads=2) / kernels.peak_gops(name, 0.01)
        assert ratio < 2.5
        if ratio > 1.5:
            return
    pytest.skip("NOT TESTED: this machine does not give two cores")


@pytest.mark.real_time
@pytest.mark.parametrize("part", kernels.Part)
def test_a_part_takes_longer_for_more(part: kernels.Part) -> None:
    short, long = (kernels.part_seconds(part, rows, 256) for rows in (2, 64))
    assert 0 <= short < long < 0.1


@pytest.mark.parametrize(
    ("wrong", "named"),
    [((0, 0, 16), "columns: 0, 16"), ((9, 1, 16), "9 is not"), ((0, 1 << 40, 1 << 30), "10995116")],
)
def test_a_part_that_there_is_not(wrong: tuple[Any, int, int], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        kernels.part_seconds(*wrong)
