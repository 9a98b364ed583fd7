"""Every way to fail that a person can meet, and what the message must say: a section, a file."""

from __future__ import annotations

from benchmarks.error_cases import (
    comparing,
    interruptions,
    machines,
    models,
    options,
    outputs,
    python_onnx,
    python_torch,
    recipes,
    reporting,
    torch_files,
    torch_models,
    tuning,
    tuning_files,
)
from benchmarks.error_cases.case import Case

__all__ = ["CASES", "Case"]

_SECTIONS = (
    *(options, models, recipes, outputs, comparing, reporting, machines, interruptions),
    *(python_onnx, torch_models, torch_files, python_torch, tuning_files, tuning),
)
CASES: dict[str, tuple[Case, ...]] = {section.TITLE: section.CASES for section in _SECTIONS}
"""Cases by the title of their section."""
