"""Serving a quantized file takes numpy and onnxruntime, nothing else."""

from __future__ import annotations

import importlib
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest

from octavo.onnx import custom_ops_library, quantize_dynamic, session
from tests.graphs import mlp, normal

PACKAGES = ("numpy", "numpy.libs", "onnxruntime")

SERVE = """
import sys
import numpy as np
from octavo.onnx.session import metadata, session
assert metadata(sys.argv[1])["octavo.recipe"] == "int8"
model = session(sys.argv[1])
np.save(sys.argv[2], model.run(None, {"x": np.load(sys.argv[3])})[0])
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


@pytest.fixture(scope="module", params=["portable", "native"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a quantized model, an input and the output that is expected."""
    folder = tmp_path_factory.mktemp("served")
    path = folder / "q.onnx"
    quantize_dynamic(mlp(), path, target=request.param, use_external_data_format=True)
    np.save(folder / "x.npy", normal(4, 32))
    np.save(folder / "expected.npy", session(path).run(None, {"x": normal(4, 32)})[0])
    return folder


def serve(python: Path | str, script: str, served: Path, *flags: str) -> None:
    paths = [str(served / name) for name in ("q.onnx", "y.npy", "x.npy")]
    done = subprocess.run(
        [python, *flags, "-c", script, *paths], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert np.array_equal(np.load(served / "y.npy"), np.load(served / "expected.npy"))
    (served / "y.npy").unlink()


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that holds numpy, onnxruntime and Octavo's own files."""
    home = tmp_path_factory.mktemp("bare")
    venv.create(home, with_pip=False, symlinks=True)
    site = next(home.glob("lib/python*/site-packages"))
    for name in PACKAGES:
        found = Path(importlib.import_module(PACKAGES[0]).__path__[0]).parent / name
        if found.exists():
            (site / name).symlink_to(found)
    package = site / "octavo"
    package.mkdir()
    for folder in importlib.import_module("octavo").__path__:
        for path in Path(folder).iterdir():
            if not (package / path.name).exists() and path.name != "__pycache__":
                (package / path.name).symlink_to(path)
    native = Path(str(importlib.import_module("octavo._native").__file__))
    for built in (native, Path(custom_ops_library())):
        if not (package / built.name).exists():
            (package / built.name).symlink_to(built)
    return home / "bin" / "python"


def test_in_a_bare_environment(bare: Path, served: Path) -> None:
    serve(bare, SERVE, served, "-W", "error")


@pytest.mark.parametrize("name", ["onnx", "onnx_ir", "pydantic", "typer", "rich", "ruamel.yaml"])
def test_the_environment_is_bare(bare: Path, name: str) -> None:
    code = f"import {name}"
    done = subprocess.run([bare, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "ModuleNotFoundError" in done.stderr


def test_nothing_else_is_imported_where_it_is_installed(served: Path) -> None:
    """The environment of the tests has everything; a hook refuses all but three packages."""
    serve(sys.executable, ALLOWED_ONLY + SERVE, served)


def test_the_hook_would_notice(served: Path) -> None:
    code = ALLOWED_ONLY + "import octavo.onnx.quantize"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "is imported" in done.stderr


def test_serving_loads_nothing_of_conversion(served: Path) -> None:
    """Of Octavo's own parts: no graphs, no recipes, and of the front end one module."""
    code = f'{SERVE}print(*[n for n in sys.modules if n.startswith("octavo.")])'
    paths = [str(served / name) for name in ("q.onnx", "y.npy", "x.npy")]
    done = subprocess.run(
        [sys.executable, "-c", code, *paths], capture_output=True, text=True, check=True
    )
    (served / "y.npy").unlink()
    loaded = done.stdout.split()
    assert {name.split(".")[1] for name in loaded} <= {"_native", "core", "errors", "files", "onnx"}
    front_end = [name for name in loaded if name.startswith("octavo.onnx.")]
    assert front_end == ["octavo.onnx.session"]
