"""What counts as the same on Windows, and what the host writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.windows.cases import Outcome, integer, read_results, sized
from tests.windows.run import difference

pytestmark = pytest.mark.slow


def outcome(*values: float) -> Outcome:
    return Outcome((np.array(values, np.float32),))


def test_all_bits_count_but_those_of_a_nan() -> None:
    one, other = np.array([0x7FC00000, 0xFFC00001], np.uint32).view(np.float32)
    assert not difference(outcome(1.0, one), outcome(1.0, other))
    assert difference(outcome(1.0), outcome(np.nextafter(np.float32(1), np.float32(2))))
    assert difference(outcome(0.0), outcome(-0.0))
    assert difference(outcome(np.nan), outcome(1.0))
    assert difference(outcome(1.0), outcome(1.0, 1.0))


def test_an_error_has_the_same_words_behind_the_code() -> None:
    wanted = Outcome(error="[ONNXRuntimeError] : 1 : FAIL : node 'dense': K is 0")
    assert not difference(wanted, Outcome(error="node 'dense': K is 0"))
    assert difference(wanted, Outcome(error="node 'dense': K is 1"))
    assert difference(wanted, outcome(1.0))
    assert difference(outcome(1.0), Outcome(error="node 'dense': K is 0"))


def test_results_are_read_as_the_host_writes_them(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    shape = integer(2) + integer(2) + integer(3)
    good = integer(1) + shape + sized(values.tobytes())
    (tmp_path / "results").write_bytes(good + integer(-1) + sized(b"refused"))
    first, second = read_results(tmp_path / "results")
    assert np.array_equal(first.outputs[0], values) and not first.error
    assert second == Outcome(error="refused")
