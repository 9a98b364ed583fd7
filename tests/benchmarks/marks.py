"""What tests of benchmarks are skipped for."""

from __future__ import annotations

import importlib.util

import pytest

needs_openvino = pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None or importlib.util.find_spec("nncf") is None,
    reason="openvino and nncf are in the extra `bench`, and not installed: a peer goes untested",
)
