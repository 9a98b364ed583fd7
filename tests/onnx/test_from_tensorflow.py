"""TensorFlow models: what is asked of tf2onnx, which a stand-in here answers for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import ModelError, OctavoError, OptionError
from octavo.onnx import from_tensorflow

STAND_IN = """
import json, pathlib, sys
arguments = sys.argv[1:]
if "bad:0" in arguments:
    print("a warning\\nAssertionError: bad is not in graph", file=sys.stderr)
    raise SystemExit(1)
pathlib.Path(arguments[arguments.index("--output") + 1]).write_text(json.dumps(arguments))
print("INFO: done")
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tf2onnx that writes down how it was called."""
    packages = tmp_path / "packages"
    for name in ("tf2onnx", "tensorflow"):
        (packages / name).mkdir(parents=True)
        (packages / name / "__init__.py").touch()
    (packages / "tf2onnx" / "convert.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.setenv("PYTHONPATH", str(packages))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    folder = tmp_path / "saved"
    folder.mkdir()
    (folder / "saved_model.pb").touch()
    return folder


@pytest.fixture
def frozen(tmp_path: Path) -> Path:
    path = tmp_path / "frozen.pb"
    path.touch()
    return path


@pytest.mark.usefixtures("installed")
def test_a_saved_model_is_converted_by_its_signature(
    saved: Path, tmp_path: Path, capfd: Any
) -> None:
    out = from_tensorflow(saved, tmp_path)
    assert out == tmp_path / "saved.onnx"
    given = json.loads(out.read_text())
    assert given[given.index("--saved-model") + 1] == str(saved)
    assert "--inputs" not in given
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("installed")
def test_a_frozen_graph_is_converted_between_named_tensors(frozen: Path, tmp_path: Path) -> None:
    out = from_tensorflow(frozen, tmp_path, inputs=["a", "b:1"], outputs=["c"])
    given = json.loads(out.read_text())
    assert given[given.index("--graphdef") + 1] == str(frozen)
    assert given[given.index("--inputs") + 1] == "a:0,b:1"
    assert given[given.index("--outputs") + 1] == "c:0"


@pytest.mark.usefixtures("installed")
def test_why_a_conversion_failed_is_said(frozen: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"frozen\.pb: tf2onnx .*bad is not in graph"):
        from_tensorflow(frozen, tmp_path, inputs=["bad"], outputs=["c"])


def test_without_tf2onnx_it_says_how_to_get_it(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("octavo.onnx.tensorflow.find_spec", lambda name: None)
    with pytest.raises(ModelError, match="pip install tf2onnx tensorflow-cpu"):
        from_tensorflow(saved, tmp_path)


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("frozen.pb", OptionError, "names of its inputs and outputs"),
        ("nothing.pb", ModelError, "does not exist"),
        ("m.h5", ModelError, "its suffix is '.h5'"),
        ("", ModelError, "holds no saved_model.pb"),
    ],
)
def test_what_is_no_tensorflow_model_is_refused(
    name: str, kind: type[OctavoError], said: str, frozen: Path, tmp_path: Path
) -> None:
    (tmp_path / "m.h5").touch()
    with pytest.raises(kind, match=said):
        from_tensorflow(tmp_path / name, tmp_path)
