"""The rows of target native: what is compared is what is named, and a missing figure is missed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import (
    convert,
    large,
    latency,
    native_models,
    onnx_layers,
    opening,
    variants,
)
from benchmarks import rows as figures
from benchmarks.latency import Setting
from benchmarks.rows import Asked
from benchmarks.variants import FLOAT, NATIVE, OPENVINO, QD_CHANNEL
from benchmarks.zoo.sessions import Array, Feed, open_session
from tests.benchmarks.marks import needs_openvino

pytestmark = pytest.mark.slow

ONCE = Setting("1 thread", processes=1, rounds=2)
MODELS = {model.title.partition(",")[0]: model for model in native_models.MODELS}


@pytest.fixture
def linear(tmp_path: Path) -> Path:
    """One Gemm, 64 inputs and 32 outputs."""
    random = np.random.RandomState(0)
    w, bias = random.standard_normal((32, 64)), random.standard_normal(32)
    path = tmp_path / "linear.onnx"
    path.write_bytes(onnx_layers.gemm(w.astype(np.float32), bias.astype(np.float32)))
    return path


def feed(rows: int) -> Feed:
    values = np.random.RandomState(rows).standard_normal((rows, 64))
    return {"x": values.astype(np.float32)}


def relative(got: Array, exact: Array) -> float:
    return float(np.linalg.norm(got - exact) / np.linalg.norm(exact))


@pytest.mark.vnni
def test_every_variant_is_what_it_is_called(linear: Path, tmp_path: Path) -> None:
    made = variants.every((FLOAT, QD_CHANNEL, NATIVE), linear, tmp_path)
    assert not made.refused
    assert list(made.reports) == [NATIVE]
    exact = open_session(linear).run(None, feed(5))[0]
    for name in (QD_CHANNEL, NATIVE):
        got = open_session(made.files[name]).run(None, feed(5))[0]
        assert 1e-4 < relative(got, exact) < 0.03
    assert b"ai.octavo" in made.files[NATIVE].read_bytes()


def test_what_cannot_be_made_has_a_reason(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    made = variants.every((FLOAT, NATIVE), tmp_path / "broken.onnx", tmp_path)
    assert list(made.files) == [FLOAT]
    assert made.refused[NATIVE].startswith("ModelError: .../broken.onnx")


@needs_openvino
def test_all_files_are_measured_in_turn_on_the_same_feeds(linear: Path, tmp_path: Path) -> None:
    made = variants.every((FLOAT, NATIVE, OPENVINO), linear, tmp_path)
    feeds = {"one row": feed(1), "9 rows": feed(9)}
    found = latency.compare(made.files, feeds, Setting(processes=2, rounds=2))
    assert list(found) == list(feeds)
    for compared in found.values():
        assert set(compared.timings) == {FLOAT, NATIVE, OPENVINO}
        assert len(compared[NATIVE].seconds) == 2 * 2


def test_a_child_that_fails_is_a_missed_row(linear: Path, tmp_path: Path) -> None:
    made = variants.Made({FLOAT: linear, NATIVE: tmp_path / "gone.onnx"}, {}, {})
    asked = (Asked(NATIVE, FLOAT, each=1.0),)
    (row,) = latency.speed_rows("title", made, {"x": feed(1)}, lambda threads: asked, [ONCE])
    assert (row.section, row.reached) == ("title: speed, 1 thread", False)
    assert "gone.onnx does not exist" in row.note


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_recurrent_model_has_a_row_for_each_batch(kind: str, tmp_path: Path) -> None:
    rows = list(native_models.model_rows(MODELS[kind], tmp_path, [ONCE], quick=True))
    bounded = [row for row in rows if row.at_least is not None]
    assert [row.at_least for row in bounded] == [{"LSTM": 1.25, "GRU": 4.0}[kind]]
    errors = [row for row in rows if row.section.endswith("error") and NATIVE in row.what]
    assert [row.what for row in errors] == [
        f"{NATIVE}, batch {batch}: relative to float" for batch in native_models.BATCHES
    ]
    assert all(1e-4 < row.measured < 0.05 for row in errors)


def test_a_share_counts_bytes(tmp_path: Path) -> None:
    report = variants.octavo_quantize(convert.write_chain(tmp_path, 4), tmp_path / "out.onnx")
    whole = figures.int8_row(report, 0.9, "s")
    assert (whole.measured, whole.reached, whole.note) == (1.0, True, "4 of 4 layers")
    first = replace(report.layers[0], quantized=False)
    part = figures.int8_row(replace(report, layers=(first, *report.layers[1:])), 0.9, "s")
    total = sum(o.bytes_before for o in report.layers)
    assert part.measured == pytest.approx(1 - first.bytes_before / total)
    assert part.reached is False
    assert part.note == "3 of 4 layers; float: m0"


def test_opening_is_measured_in_a_child(tmp_path: Path) -> None:
    rows = list(opening.rows(tmp_path, 1, 1))
    assert [row.at_most for row in rows] == [1.0, 1.0, None, None]
    assert all(0 < row.measured < 100 for row in rows)
    found = large.child("opened", tmp_path / "large.onnx")
    assert found["peak"] > large.WEIGHT_BYTES
    assert 0 < found["seconds"] < 60


def test_a_disk_that_is_short_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "WEIGHT_BYTES", 2**60)
    (row,) = opening.rows(tmp_path, 64, 1)
    assert math.isnan(row.measured)
    assert row.reached is None
    assert "set TMPDIR to a folder with more" in row.note


def test_every_part_of_the_table_has_a_section(tmp_path: Path) -> None:
    found = native_models.sections(tmp_path, True, 1)
    named: Sequence[str] = ("all-MiniLM-L6", "LSTM", "GRU", "silero-vad", "magika", "nano-ocr")
    for name in (*named, "Fashion-MNIST", "Opening"):
        assert sum(name in title for title in found) == 1, name
