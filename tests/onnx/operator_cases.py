"""ONNX's own test cases of operators, for the tests that run some of them."""

from __future__ import annotations

import importlib
import warnings
from functools import cache
from typing import Any

from onnx.backend.test.case import node as cases_of_nodes

# Whose cases a test runs. Importing a module makes its cases; making those of every operator, as
# ONNX's collect_testcases does, takes ten seconds.
MODULES = (
    "conv convinteger dequantizelinear dynamicquantizelinear gather gemm gru lstm matmul "
    "matmulinteger qlinearconv qlinearmatmul quantizelinear rnn"
).split()


@cache
def operator_cases() -> dict[str, Any]:
    """All of `MODULES` by name, without `test_`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in MODULES:
            importlib.import_module(f"{cases_of_nodes.__name__}.{name}")
    return {case.name.removeprefix("test_"): case for case in cases_of_nodes._NodeTestCases}
