"""The model that README starts with is the one of the zoo, though PyTorch had no hand in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.results import REPOSITORY
from benchmarks.zoo import minilm
from benchmarks.zoo.sessions import open_session

pytestmark = pytest.mark.slow


@pytest.mark.models
def test_what_is_drawn_computes_what_is_exported(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    code = (
        "import sys; from benchmarks.zoo.minilm_graph import main; code = main(sys.argv[1:])\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules\n"
        "sys.exit(code)"
    )
    command = [sys.executable, "-c", code, path]
    done = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True)
    assert done.stdout.startswith(f"wrote {path}, 90.3 MB, from ")
    onnx.checker.check_model(str(path), full_check=True)
    drawn, exported = open_session(path), open_session(minilm.onnx_path())
    documents = minilm.lee_documents()
    for texts in (documents[:2], ["hi", "a few words more"]):
        feed = minilm.tokenize(texts)
        real = feed["attention_mask"] == 1
        (got,), (expected,) = drawn.run(None, feed), exported.run(None, feed)
        # The same operations in the same order, whatever ONNX Runtime makes of either.
        np.testing.assert_allclose(got[real], expected[real], atol=1e-5, rtol=0)
