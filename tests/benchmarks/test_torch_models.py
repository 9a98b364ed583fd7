"""The PyTorch benchmark compares what it says, and goes on where something cannot be measured."""

from __future__ import annotations

import math
import subprocess

import pytest
import torch

from benchmarks import (
    rows,
    runner,
    torch_models,
    torch_variants,
)
from benchmarks.rows import Asked
from benchmarks.runner import Job
from benchmarks.torch_variants import ACCURATE, AO, AO_CHANNEL, FLOAT, HALF, OCTAVO
from octavo.measure.timing import Comparison, Timing

pytestmark = pytest.mark.slow


def stack() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))


@pytest.mark.parametrize("name", [AO, AO_CHANNEL, OCTAVO, ACCURATE, HALF])
def test_a_variant_is_quantized_and_the_float_model_is_not(name: str) -> None:
    exact, x = stack(), torch.randn(4, 32)
    made = torch_variants.quantized(name, exact)
    assert type(exact[0]) is type(exact[2]) is torch.nn.Linear  # type: ignore[index]
    assert type(made[0]) is not torch.nn.Linear  # type: ignore[index]
    with torch.inference_mode():
        error = float((made(x) - exact(x)).norm() / exact(x).norm())
    assert (1e-5 < error < 1e-3) if name == HALF else (1e-3 < error < 0.05)


def test_what_cannot_be_made_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("no such thing\nin /some/folder/file.py")

    monkeypatch.setattr(torch_variants, "front_end", fail)
    made, refused = torch_variants.every((FLOAT, AO, OCTAVO), stack())
    assert list(made) == [FLOAT, AO]
    assert refused == {OCTAVO: "ValueError: no such thing in .../file.py"}


def test_the_reason_of_a_child_is_its_last_line() -> None:
    error = subprocess.CalledProcessError(1, ["x"], stderr="Traceback\nKeyError: 'part'\n")
    assert runner.reason(error) == "KeyError: 'part'"
    with pytest.raises(subprocess.CalledProcessError) as caught:
        runner.run(Job("parts:gone", torch=False))
    assert runner.reason(caught.value).startswith("AttributeError: module 'benchmarks.parts'")


def comparison(**seconds: float) -> Comparison:
    return Comparison({name: Timing((s, s, s), (1.0,) * 3) for name, s in seconds.items()})


def test_speed_rows_hold_means_and_the_slowest() -> None:
    found = {"small": comparison(a=1.0, b=2.0), "large": comparison(a=1.0, b=8.0)}
    found_rows = list(rows.speed_rows(found, [Asked("a", "b", mean=3.9, each=2.5)], "s", {}))
    mean, slowest, *cells = found_rows
    assert mean.measured == pytest.approx(4.0)
    assert mean.reached is True
    assert (slowest.measured, slowest.note, slowest.reached) == (2.0, "small", False)
    assert [row.measured for row in cells] == [2.0, 8.0]
    assert {row.reached for row in cells} == {None}
    (only,) = rows.speed_rows({"small": found["small"]}, [Asked("a", "b", each=1)], "s", {})
    assert only.reached is True


def test_a_module_that_is_missing_is_missed() -> None:
    found = {"small": comparison(b=2.0), "large": comparison(b=8.0)}
    asked = [Asked("a", "b", mean=1.0, each=1.0)]
    found_rows = list(rows.speed_rows(found, asked, "s", {"a": "why"}))
    assert [row.reached for row in found_rows] == [False, False, None, None]
    assert all(math.isnan(row.measured) and row.note == "a: why" for row in found_rows)


def test_an_outlier_reaches_the_others_of_torch_ao_only() -> None:
    exact, x = torch_models.batches()["stack of Linears"]
    peer = torch_models.effect(torch_variants.quantized(AO, exact), exact, x)
    assert peer.changed == peer.elements == 7 * torch_models.WIDTH
    assert 0.01 < peer.error < 0.1 < peer.error_beside
    float_model = torch_models.effect(exact, exact, x)
    assert (float_model.error, float_model.changed) == (0.0, 0)


@pytest.mark.models
@pytest.mark.parametrize(
    ("part", "cell", "label"),
    [
        pytest.param("minilm", (1, 4), "1x4", marks=pytest.mark.slow),
        pytest.param("g2p_en", (2,), "2 words, one by one", marks=pytest.mark.slow),
        ("ocr", (1,), "1 image"),
    ],
)
def test_a_model_is_measured_in_a_child(part: str, cell: tuple[int, ...], label: str) -> None:
    job = Job(f"parts_torch:{part}", (cell,), rounds=2, peers=(FLOAT, AO))
    found = runner.pooled_run(job, 2)
    assert list(found) == [label]
    assert list(found[label].timings) == [FLOAT, AO]
    assert len(found[label][AO].seconds) == 2 * 2
