"""The figures of `benchmarks.decoders`: what is measured, and the models that it is measured on."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from benchmarks import decoders_speed, few_bits
from benchmarks.families_aims import Aims
from benchmarks.latency import Setting
from benchmarks.runner import Answer, Job
from benchmarks.zoo import big_llama, whisper_tiny
from octavo.measure.timing import Comparison, Timing

pytestmark = pytest.mark.slow


def test_a_speed_is_asked_of_llama_cpp_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {decoders_speed.INT4: [30.0, 40.0, 20.0], decoders_speed.LLAMA_CPP: [20.0, 20.0, 20.0]}
    monkeypatch.setattr(decoders_speed.runner, "value", lambda job: dict(found))
    setting, peers = Setting("1 thread", 1, rounds=3), tuple(found)
    rows = list(decoders_speed.rows("s", decoders_speed.BIG, "Q4_0", 256, setting, peers, Aims()))
    assert [(row.what, row.measured, row.at_least) for row in rows] == [
        ("octavo int4", 30.0, None),
        ("llama.cpp", 20.0, None),
        ("octavo int4: speed over llama.cpp", 1.5, 2.0),
    ]


@pytest.mark.parametrize("kind", big_llama.TYPES)
def test_a_random_file_holds_weights_of_the_order_that_a_model_has(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gguf = pytest.importorskip("gguf")
    for name, value in {"WIDTH": 256, "LAYERS": 1, "FORWARD": 512, "VOCABULARY": 96}.items():
        monkeypatch.setattr(big_llama, name, value)
    big_llama._write(tmp_path / "a.gguf", kind)
    tensors = {t.name: t for t in gguf.GGUFReader(tmp_path / "a.gguf").tensors}
    down = tensors["blk.0.ffn_down.weight"]
    assert (list(down.shape), down.tensor_type.name) == ([512, 256], kind)
    weights = gguf.quants.dequantize(down.data, down.tensor_type)
    assert weights.shape == (256, 512)
    assert np.std(weights) == pytest.approx(512**-0.5, rel=0.05)
    assert len(tensors) == 2 + 7 + 3


def test_variables_of_ctranslate2_are_read(tmp_path: Path) -> None:
    def text(word: str) -> bytes:
        return struct.pack("<H", len(word) + 1) + word.encode() + b"\0"

    values = np.arange(6, dtype=np.float16).reshape(2, 3)
    variable = text("a/weight") + struct.pack("<BII", 2, 2, 3) + struct.pack("<BI", 4, 12)
    head = struct.pack("<I", 6) + text("WhisperSpec") + struct.pack("<II", 3, 1)
    alias = struct.pack("<I", 1) + text("b/weight") + text("a/weight")
    (tmp_path / "model.bin").write_bytes(head + variable + values.tobytes() + alias)
    found = whisper_tiny._read(tmp_path / "model.bin")
    assert sorted(found) == ["a/weight", "b/weight"]
    assert np.array_equal(found["b/weight"], values)


def test_one_row_goes_through_more_than_the_cache_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few_bits.parts, "last_cache_bytes", lambda: 64 * 64)
    job = few_bits.Job("few_bits:one_row", ((1, 64, 64),), 1, rounds=2)
    (found,) = few_bits.one_row(job).values()
    assert isinstance(found, Comparison)
    assert sorted(found.timings) == [few_bits.INT4, few_bits.INT8, few_bits.parts.READ]


def test_a_layer_is_measured_with_one_row_and_with_many(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {few_bits.INT8: 2.0, few_bits.INT4: 1.0, few_bits.parts.READ: 0.9}
    compared = Comparison({name: Timing((t, t), (1.0, 1.0)) for name, t in times.items()})
    jobs = []

    def run(job: Job) -> Answer:
        jobs.append(job)
        return Answer("avx2", 0.0, dict.fromkeys(map(few_bits.parts.label, job.cells), compared))

    monkeypatch.setattr(few_bits.runner, "run", run)
    found = few_bits.sections(Setting("1 thread", 1, rounds=2), ((64, 32),))
    rows = [row for section in found.values() for row in section(Aims()) if row.at_least]
    assert [job.cells for job in jobs] == [((1, 64, 32),), ((128, 64, 32), (512, 64, 32))]
    assert [(row.what, row.measured, row.at_least) for row in rows] == [
        ("speed over int8", 2.0, 1.7),
        ("share of a plain read's bandwidth", pytest.approx(0.9), 0.85),
        ("128 x 64 x 32: share of the speed of int8", 2.0, 0.85),
        ("512 x 64 x 32: share of the speed of int8", 2.0, 0.85),
    ]
