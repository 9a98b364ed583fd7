"""Serving a quantized file takes numpy and onnxruntime, nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from octavo.onnx import quantize_dynamic, session
from tests.graphs import mlp, normal

TARGETS = ("portable", "native")
SERVE = """
import sys
from pathlib import Path
import numpy as np
from octavo.onnx.session import metadata, session
folder = Path(sys.argv[1])
for path in sorted(folder.glob("*.onnx")):
    assert metadata(path)["octavo.recipe"] == "int8"
    found = session(path).run(None, {"x": np.load(folder / "x.npy")})[0]
    assert np.array_equal(found, np.load(path.with_suffix(".npy")))
    print(path.stem)
"""

# What is not there raises, and what is there must be one of these.
ALLOWED_ONLY = """
import sys
import onnxruntime, numpy  # with whatever they need
class Refuse:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top in ("octavo", "numpy", "onnxruntime"):
            return None
        if top.startswith("_") and top not in sys.modules:  # hooks of editable installs
            return None
        raise ImportError(f"{name} is imported")
sys.meta_path.insert(0, Refuse())
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with quantized models, an input and the outputs that are expected."""
    folder, x = tmp_path_factory.mktemp("served"), normal(4, 32)
    np.save(folder / "x.npy", x)
    for target in TARGETS:
        path = folder / f"{target}.onnx"
        options = {"use_external_data_format": True, "verify": False}
        quantize_dynamic(mlp(), path, target=target, **options)
        np.save(path.with_suffix(".npy"), session(path).run(None, {"x": x})[0])
    return folder


def process(python: Path | str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([python, *arguments], capture_output=True, text=True, check=False)


def test_nothing_else_is_imported_where_it_is_installed(served: Path) -> None:
    """The environment of the tests has everything; a hook refuses all but three packages.

    Of Octavo's own parts there are no graphs, no recipes, and of the front end one module.
    """
    told = 'print(*[n for n in sys.modules if n.startswith("octavo.")])'
    done = process(sys.executable, "-c", ALLOWED_ONLY + SERVE + told, served)
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.splitlines()[-1].split()
    assert {name.split(".")[1] for name in loaded} <= {"_native", "core", "errors", "files", "onnx"}
    assert [n for n in loaded if n.startswith("octavo.onnx.")] == ["octavo.onnx.session"]


def test_reading_metadata_loads_no_onnxruntime(served: Path) -> None:
    code = "import sys; from octavo.onnx.session import metadata; print(metadata(sys.argv[1]))"
    code += '; assert not {"onnxruntime", "onnx"} & set(sys.modules)'
    done = process(sys.executable, "-c", code, served / "portable.onnx")
    assert done.returncode == 0 and "octavo.cpu" in done.stdout, done.stderr


def test_the_hook_would_notice() -> None:
    done = process(sys.executable, "-c", ALLOWED_ONLY + "import octavo.onnx.quantize")
    assert done.returncode != 0 and "is imported" in done.stderr
