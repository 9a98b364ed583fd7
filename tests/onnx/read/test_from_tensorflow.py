"""TensorFlow models: what is asked of tf2onnx, which a stand-in here answers for."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from octavo.errors import ModelError, OctavoError, OptionError
from octavo.onnx import from_tensorflow, quantize_dynamic
from tests.graphs import F32, build, mlp, normal, run, save

STAND_IN = """
import json, os, pathlib, shutil, sys
arguments = sys.argv[1:]
if "bad:0" in arguments:
    print("a warning\\nAssertionError: bad is not in graph", file=sys.stderr)
    raise SystemExit(1)
out = pathlib.Path(arguments[arguments.index("--output") + 1])
shutil.copy(os.environ["STAND_IN_MODEL"], out)
out.with_suffix(".json").write_text(json.dumps(arguments))
print("INFO: done")
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tf2onnx that writes down how it was called, and gives a model that was there."""
    packages = tmp_path / "packages"
    for name in ("tf2onnx", "tensorflow"):
        (packages / name).mkdir(parents=True)
        (packages / name / "__init__.py").touch()
    (packages / "tf2onnx" / "convert.py").write_text(STAND_IN)
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.setenv("PYTHONPATH", str(packages))
    monkeypatch.setenv("STAND_IN_MODEL", str(save(mlp(), tmp_path / "made.onnx")))


def converted(x: str, *nodes: onnx.NodeProto) -> onnx.ModelProto:
    """x [n, 32] -> MatMul -> `nodes`, which read `x` and give y."""
    first = helper.make_node("MatMul", ["x", "w"], [x], name="layer")
    return build(
        [first, *nodes], [("x", F32, ["n", 32])], [("y", F32, ["n", 32])], {"w": normal(32, 32)}
    )


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
    given = json.loads(out.with_suffix(".json").read_text())
    assert given[given.index("--saved-model") + 1] == str(saved)
    assert "--inputs" not in given
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("installed")
def test_a_frozen_graph_is_converted_between_named_tensors(frozen: Path, tmp_path: Path) -> None:
    out = from_tensorflow(frozen, tmp_path, inputs=["a", "b:1"], outputs=["c"])
    given = json.loads(out.with_suffix(".json").read_text())
    assert given[given.index("--graphdef") + 1] == str(frozen)
    assert given[given.index("--inputs") + 1] == "a:0,b:1"
    assert given[given.index("--outputs") + 1] == "c:0"


@pytest.mark.usefixtures("installed")
def test_why_a_conversion_failed_is_said(frozen: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"frozen\.pb: tf2onnx .*bad is not in graph"):
        from_tensorflow(frozen, tmp_path, inputs=["bad"], outputs=["c"])


@pytest.mark.usefixtures("installed")
def test_an_erfc_that_tf2onnx_hands_on_is_written_out(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save(converted("h", helper.make_node("Erfc", ["h"], ["y"])), tmp_path / "erfc.onnx")
    monkeypatch.setenv("STAND_IN_MODEL", str(model))
    out = from_tensorflow(saved, tmp_path)
    x = normal(5, 32)
    (y,) = run(out, {"x": x})
    expected = np.vectorize(math.erfc)((x @ normal(32, 32)).astype(np.float64))
    assert np.allclose(y, expected, atol=1e-5)
    assert quantize_dynamic(out, tmp_path / "int8.onnx").verification.status == "passed"


@pytest.mark.usefixtures("installed")
def test_what_tf2onnx_has_no_form_of_is_named(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tf2onnx hands such nodes on, logs them, and exits as after a success."""
    nodes = helper.make_node("Betainc", ["h"], ["b"]), helper.make_node("Lgamma", ["b"], ["y"])
    model = save(converted("h", *nodes), tmp_path / "unknown.onnx")
    monkeypatch.setenv("STAND_IN_MODEL", str(model))
    with pytest.raises(ModelError, match=r"no ONNX form of the TensorFlow operators Betainc, Lg"):
        from_tensorflow(saved, tmp_path)
    assert not (tmp_path / "saved.onnx").exists()


def test_one_that_is_given_as_onnx_says_how_to_convert_it(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"saved is a TensorFlow SavedModel; .*from_tensorflow\("):
        quantize_dynamic(saved, tmp_path / "out.onnx")


def test_without_tf2onnx_it_says_how_to_get_it(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("tf2onnx", "tensorflow"):
        monkeypatch.setitem(sys.modules, name, None)
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
