"""Placeholder until the C++ program is merged."""

from typing import Any

Program: Any = None
