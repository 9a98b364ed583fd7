"""The figures of `benchmarks.families`: who is measured, against whom, and which aim is missed."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import families, families_decoding, families_onnx, families_torch
from benchmarks.families_aims import Aim, Aims
from benchmarks.latency import Setting
from benchmarks.runner import Job
from benchmarks.variants import NATIVE, QD_CHANNEL
from benchmarks.zoo import families as table
from benchmarks.zoo import family_exports, family_models
from benchmarks.zoo.family import Size
from octavo.measure.timing import Comparison, Timing

pytestmark = pytest.mark.slow

BERT, LLAMA = table.FAMILIES["BERT"], table.FAMILIES["Llama"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The small models in the published ones' place, and one thread."""
    monkeypatch.setattr(Comparison, "check_threads", lambda self, threads: None)
    model, feed = family_models.model, family_models.feed

    def small_model(family: object, size: Size, *more: object, **options: object) -> object:
        return model(family, Size.SMALL, *more, **options)  # type: ignore[arg-type]

    def small_feed(family: object, size: Size, *more: object, **options: object) -> object:
        return feed(family, Size.SMALL, *more, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(family_models, "model", small_model)
    monkeypatch.setattr(family_models, "feed", small_feed)


def asked(*arguments: str) -> list[str]:
    """Titles of the sections that a command measures."""
    options = families._parser().parse_args(arguments)
    return list(families.sections(options, Path("nowhere")))


def test_sections_of_one_family() -> None:
    token = "Llama: one token after a cache, 1 thread"
    assert asked("--only", "Llama", "--decoding", "--quick") == [token]
    made, speed = (f"Llama: ONNX, target native: {w}" for w in ("what was made", "speed, 1 thread"))
    whole = ["Llama: PyTorch, 1 thread", made, speed, token]
    assert asked("--only", "Llama", "--quick") == whole
    two = asked("--only", "Llama", "--torch", "--threads", "2")
    assert not any("1 thread" in title for title in two)


def test_the_least_of_an_aim_is_what_counts() -> None:
    aims = Aims()
    for where, figure in (("a", 1.5), ("b", 1.2), ("c", math.nan)):
        aims.add(Aim.TORCH_OVER_AO, where, figure)
    (row,) = aims.rows("Aims")
    assert row.measured == 1.2 and row.reached is False
    assert row.note == "b; 1 of 3 reach it"


@pytest.mark.usefixtures("small")
def test_a_token_of_every_peer() -> None:
    job = Job("families_decoding:token", rounds=2, peers=families_decoding.PEERS)
    with torch.inference_mode():
        found = families_decoding.token(replace(job, options={"family": "Llama"}))
    assert set(found["times"]) == set(families_decoding.PEERS)
    assert all(1e-7 < angle < 0.01 for angle, _ in found["errors"].values())


def test_errors_are_of_all_outputs() -> None:
    exact, found = torch.tensor([[3.0, 4.0]]), torch.tensor([[4.0, 3.0]])
    angle, worst = families_torch.output_error(found, exact)
    assert math.isclose(angle, 1 - 24 / 25)
    assert math.isclose(worst, 1 / math.sqrt(12.5))
    again = families_onnx.output_error(found.numpy(), exact.numpy())
    assert np.allclose(again, (angle, worst))


def test_files_of_a_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = family_exports.onnx_path(BERT, Size.SMALL, family_exports.Export("torchscript", "eager"))
    feed = family_exports.numpy_feed(family_models.feed(BERT, Size.SMALL))
    monkeypatch.setattr(families_onnx, "PEERS", (QD_CHANNEL,))
    monkeypatch.setattr(family_exports, "onnx_path", lambda *_: path)
    monkeypatch.setattr(families_onnx, "_feed", lambda family: feed)
    made = families_onnx.files(BERT, tmp_path, two=True)
    assert not made.refused
    assert made.fused == {f"{export}: {NATIVE}": 2 for export in made.exports}
    assert {label.partition(": ")[2] for label in made.files} == {QD_CHANNEL, NATIVE}
    assert all(1e-6 < angle < 0.01 for angle, _ in made.errors.values())
    made.write(tmp_path)
    assert families_onnx.Files.read(tmp_path) == made
    monkeypatch.setattr(families_onnx, "code", lambda: ("another commit", False))
    assert families_onnx.Files.read(tmp_path) is None


def test_exports_are_compared_with_their_own_peers_and_with_each_other() -> None:
    times = {
        f"a: {QD_CHANNEL}": 3.0,
        f"a: {NATIVE}": 2.0,
        f"b: {QD_CHANNEL}": 4.0,
        f"b: {NATIVE}": 4.0,
    }
    found = Comparison({n: Timing((t, t), (1.0, 1.0)) for n, t in times.items()})
    made, aims = families_onnx.Files(exports=["a", "b"]), Aims()
    rows = families_onnx.compared_rows(LLAMA, made, found, Setting("1 thread"), aims, "s")
    figures = {row.what: row.measured for row in rows}
    assert figures["a: over the best"] == 1.5 and figures["b: over the best"] == 1.0
    assert figures["fastest export's time as a share of the slowest's"] == 0.5
    least = {row.what: row.measured for row in aims.rows("Aims")}
    assert least[Aim.ONNX_OVER_PEERS.what] == 1.0 and least[Aim.EXPORTERS.what] == 0.5
