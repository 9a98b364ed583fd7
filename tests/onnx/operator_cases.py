"""ONNX's own test cases of operators, for the tests that run some of them."""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import pytest

ONE_WORKER = pytest.mark.xdist_group("operator cases")
"""Tests that use them share a process: collecting takes ten seconds."""


@cache
def operator_cases() -> dict[str, Any]:
    """All by name, without `test_`. ONNX collects those of one operator but once in a process."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {case.name.removeprefix("test_"): case for case in collect_testcases(None)}
