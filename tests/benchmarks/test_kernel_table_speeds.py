"""What the doctor says of kernel tables is what committed results say, to two digits."""

from __future__ import annotations

import pytest

from benchmarks import kernel_tables
from benchmarks.results import FOLDER, read
from octavo.measure.kernel_tables import TABLES

MANY = kernel_tables.MANY
RESULTS = {"speed": ("kernel_tables", "amx"), "amd": ("kernel_tables_vnni", "avx512vnni")}
"""By a table's field, the committed result and what Octavo used on its machine."""


def measured(maker: str) -> dict[str, tuple[float, float]]:
    """By table the speed over AVX2, for one row and for many."""
    file, best = RESULTS[maker]
    section = f"{kernel_tables.TITLE} (octavo: {best})"
    means = {
        row.what.split(", geometric")[0]: row.measured
        for row in read(FOLDER / f"{file}.json").rows
        if row.section == section and "geometric mean" in row.what
    }
    names = {what.split(", ")[0] for what in means}
    return {n: (means[f"{n}, M = 1"], means[f"{n}, M >= {MANY}"]) for n in names}


@pytest.mark.parametrize("maker", RESULTS)
def test_a_speed_over_avx2_is_the_mean_that_was_measured(maker: str) -> None:
    said = {t.name: getattr(t, maker) for t in TABLES if getattr(t, maker)}
    assert said.pop(kernel_tables.AVX2) == (1, 1)
    found = measured(maker)
    assert said == {name: pytest.approx(found[name], abs=0.006) for name in said}
    assert found.keys() - said.keys() == {"avx512vnni256"}, "which doctor does not compare"
