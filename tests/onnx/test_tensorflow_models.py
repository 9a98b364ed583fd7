"""Keras models through TensorFlow's SavedModel, tf2onnx and Octavo, compared with Keras itself.

They need an environment with TensorFlow: $OCTAVO_TENSORFLOW_PYTHON, or .venv-tf/bin/python as
`make test-all` makes it, which finds Octavo in .venv.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "OCTAVO_TENSORFLOW_PYTHON"
DEFAULT = Path(__file__).parents[2] / ".venv-tf" / "bin" / "python"
SCRIPT = """
import json, sys
from pathlib import Path
import keras, numpy as np, tensorflow as tf
import octavo.onnx

folder = Path(sys.argv[1])
keras.utils.set_random_seed(0)
dense, inputs = keras.layers.Dense, keras.Input

def exact_gelu(x):
    return keras.activations.gelu(x, approximate=False)

def transformer():
    x = inputs((16, 32))
    mixed = keras.layers.MultiHeadAttention(4, 8)(x, x)
    normed = keras.layers.LayerNormalization()(mixed + x)
    return keras.Model(x, dense(32)(dense(64, activation=exact_gelu)(normed)))

def mlp():
    layers = [dense(64, activation=exact_gelu), dense(64, activation="relu"), dense(8)]
    return keras.Sequential([inputs((32,)), *layers])

def lstm():
    table = keras.layers.Embedding(100, 32)
    return keras.Sequential([inputs((20,)), table, keras.layers.LSTM(32), dense(8)])

def conv():
    layers = [keras.layers.Conv2D(16, 3, activation="relu"), keras.layers.BatchNormalization()]
    pooled = [keras.layers.GlobalAveragePooling2D(), dense(64, activation="relu"), dense(8)]
    return keras.Sequential([inputs((32, 32, 3)), *layers, *pooled])

rng, found = np.random.default_rng(0), {}
for make in (mlp, transformer, lstm, conv):
    model, name = make(), make.__name__
    shape = (4, *model.inputs[0].shape[1:])
    x = rng.integers(0, 100, shape) if make is lstm else rng.standard_normal(shape)
    x = x.astype(np.float32)
    expected = np.asarray(model(x))
    model.export(folder / name, verbose=False)
    path = octavo.onnx.from_tensorflow(folder / name, folder)
    runs = {}
    for target in ("portable", "native"):
        out = folder / f"{name}.{target}.onnx"
        report = octavo.onnx.quantize_dynamic(path, out, target=target)
        session = octavo.onnx.session(out)
        (y,) = session.run(None, {session.get_inputs()[0].name: x})
        error = float(np.abs(y - expected).max() / np.abs(expected).max())
        runs[target] = [report.verification.status, len(report.quantized), error]
    found[name] = runs
Path(sys.argv[2]).write_text(json.dumps(found))
"""


@pytest.fixture(scope="module")
def python() -> Path:
    stated = os.environ.get(VARIABLE)
    found = Path(stated) if stated else DEFAULT
    if not found.exists():
        assert not stated, f"{VARIABLE} names {stated}, which does not exist"
        pytest.skip(
            f"NOT TESTED with TensorFlow: there is no {found}. `make test-all` makes it; "
            f"{VARIABLE} names another interpreter"
        )
    return found


def run(python: Path, *arguments: str, cwd: Path) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [str(python), *arguments],
        env={**kept, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.slow
def test_saved_models_are_quantized_and_agree_with_keras(python: Path, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    run(python, "-c", SCRIPT, str(tmp_path), str(result), cwd=tmp_path)
    found: dict[str, dict[str, Any]] = json.loads(result.read_text())
    assert found.keys() == {"mlp", "transformer", "lstm", "conv"}
    for name, runs in found.items():
        for target, (status, layers, error) in runs.items():
            assert status == "passed", (name, target)
            assert layers >= 2, (name, target)
            assert 0 < error < 0.05, (name, target)


@pytest.mark.slow
def test_tuning_takes_a_saved_model(python: Path, tmp_path: Path) -> None:
    make = (
        "import keras; layers = [keras.Input((32,)), keras.layers.Dense(64), keras.layers.Dense(8)]"
        "; keras.Sequential(layers).export('saved', verbose=False)"
    )
    run(python, "-c", make, cwd=tmp_path)
    (tmp_path / "conf.yaml").write_text(
        "model: {name: saved, framework: tensorflow}\n"
        "quantization: {approach: post_training_dynamic_quant}\n"
        "tuning: {accuracy_criterion: {relative: 0.05}, exit_policy: {max_trials: 2}}\n"
    )
    run(python, "-m", "octavo", "tune", "conf.yaml", "--model", "saved", cwd=tmp_path)
    assert (tmp_path / "saved.tuned.onnx").stat().st_size > 0
