"""The float models give the figures that quantized ones are measured against."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.zoo import magika, minilm, silero
from benchmarks.zoo.sessions import open_session

pytestmark = [pytest.mark.slow, pytest.mark.models]

# Golden values: onnxruntime 1.31, torch 2.13, x86-64. On another machine its kernels move the
# correlations in the sixth digit and a few of a classifier's borderline cases.


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
def test_minilm_float(exporter: minilm.Exporter) -> None:
    session = minilm.open_session(minilm.onnx_path(exporter))
    embed = minilm.embedder(session)
    evaluation = minilm.Evaluation(embed)
    assert evaluation.lee(embed) == pytest.approx(0.65637, abs=1e-4)
    assert evaluation.wordsim(embed) == pytest.approx(0.72890, abs=1e-4)
    assert np.allclose(np.linalg.norm(embed(["one", "two words"]), axis=1), 1.0, atol=1e-6)


def test_minilm_probe() -> None:
    embed = minilm.embedder(minilm.open_session(minilm.onnx_path()))
    assert minilm.Evaluation(embed).trec(embed) == pytest.approx(0.805, abs=0.005)


def test_silero_forms_are_one_network() -> None:
    found = {
        name: silero.frame_probabilities(open_session(path))
        for name, path in {**silero.forms(), **silero.more_forms()}.items()
    }
    reference = found.pop("initializers")
    for name, probabilities in found.items():
        assert np.abs(probabilities - reference).max() < 1e-4, name


def test_silero_float() -> None:
    scores = silero.scores(open_session(silero.forms()["initializers"]))
    assert scores.auc == pytest.approx(0.9906, abs=1e-3)
    assert scores.accuracy == pytest.approx(0.9652, abs=2e-3)


def test_magika_float() -> None:
    session = open_session(magika.model_path())
    files = magika.known_files()
    assert len(files) == 626
    assert {name for file in files for name in file.allowed} <= set(magika.labels())
    assert magika.accuracy(session) == pytest.approx(0.920, abs=0.004)
