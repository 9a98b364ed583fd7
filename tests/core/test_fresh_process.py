"""A function in a process of its own: what it returns, what becomes of failures, and its memory."""

import os
import signal
from typing import Any

import numpy as np
import pytest

from octavo.core.fresh_process import ChildError, added_at_peak, call


def doubled(value: Any) -> Any:
    print("kept from the terminal")
    return [value, value]


def failed() -> None:
    raise ValueError("no such thing")


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def megabytes(count: int) -> int:
    return added_at_peak(lambda: np.ones(count << 20, np.uint8)) >> 20


def test_arguments_and_answers_are_whatever_can_be_pickled(capfd: pytest.CaptureFixture) -> None:
    first, second = call(doubled, value={1: np.arange(3)})
    assert first[1].tolist() == second[1].tolist() == [0, 1, 2]
    assert capfd.readouterr().out == ""


def test_what_went_wrong_is_the_last_that_it_said() -> None:
    with pytest.raises(ChildError, match=r"^ValueError: no such thing$") as caught:
        call(failed)
    assert caught.value.exit_code == 1 and caught.value.last_line == "ValueError: no such thing"
    with pytest.raises(ChildError, match=r"^its process was ended by signal 9$"):
        call(killed)


def test_memory_is_what_the_action_adds() -> None:
    assert 60 <= call(megabytes, count=64) < 80
