"""What the doctor says of kernel tables is what committed results say, to two digits."""

from __future__ import annotations

import re
from statistics import geometric_mean

import pytest

from benchmarks import kernel_tables
from benchmarks.results import FOLDER, read
from octavo.measure.kernel_tables import TABLES

SPEEDS = {table.name: table.speed for table in TABLES}
TWIN = {"avxvnni": "avx512vnni256"}
"""A table that no machine of ours runs, and the one that is the same program."""
MANY = kernel_tables.MANY


def measured(name: str) -> tuple[float, float]:
    """Speed over AVX2 for one row, and for many."""
    section = f"{kernel_tables.TITLE} (octavo: avx512vnni)"
    rows = [r for r in read(FOLDER / "kernel_tables_vnni.json").rows if r.section == section]
    (one,) = (r.measured for r in rows if r.what.startswith(f"{name}, M = 1, "))
    (many,) = (r.measured for r in rows if r.what.startswith(f"{name}, M >= {MANY}, "))
    return one, many


def microseconds(section: str) -> dict[tuple[int, int, int], float]:
    """Of Octavo's layers in a section of a machine with AMX, by M, K and N."""
    found = {}
    for row in read(FOLDER / "kernels.json").rows:
        cell = re.search(r"(\d+) x (\d+) x (\d+)$", row.what)
        took = re.search(r"octavo ([\d.,]+)", row.note)
        if row.section == section and cell and took:
            m, k, n = map(int, cell.groups())
            found[m, k, n] = float(took[1].replace(",", ""))
    return found


@pytest.mark.parametrize("name", ["avx512vnni", "avxvnni", "avx512"])
def test_a_speed_over_avx2_is_the_mean_that_was_measured(name: str) -> None:
    assert SPEEDS[name] == pytest.approx(measured(TWIN.get(name, name)), abs=0.006)


def test_amx_is_measured_beside_vnni_which_is_measured_beside_avx2() -> None:
    amx = microseconds("Linear, one thread, AMX (octavo: amx)")
    vnni = microseconds("Linear, one thread, AMX refused (octavo: avx512vnni)")
    over = {cell: vnni[cell] / amx[cell] for cell in amx.keys() & vnni.keys()}
    assert len(over) > 30
    of_vnni = measured("avx512vnni")
    one = of_vnni[0] * geometric_mean(s for cell, s in over.items() if cell[0] == 1)
    many = of_vnni[1] * geometric_mean(s for cell, s in over.items() if cell[0] >= MANY)
    assert SPEEDS["amx"] == pytest.approx((one, many), abs=0.006)
