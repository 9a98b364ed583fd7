"""The kernel benchmarks from end to end, with PyTorch's float layers in the place of Octavo's."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from benchmarks import kernel_tables, kernels, limits, ours, parts, peers, peers_rnn, rnn, runner
from benchmarks import rows as figures
from benchmarks.ours import OCTAVO
from benchmarks.runner import Answer, Effort, Job
from octavo.measure.timing import Comparison, Timing, interleave

pytestmark = pytest.mark.slow

PEERS = ("torch fp32", "ONNX Runtime int8")
CELLS = ((1, 64, 64), (64, 64, 64))
WIDE = ((1, 768, 768), (64, 768, 768))
"""What shares of a speed are taken of: layers of that width and more."""


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> list[Job]:
    """Jobs run in this process, on small layers and with the peers that are always there."""
    jobs: list[Job] = []

    def run(job: Job) -> Answer:
        jobs.append(job)
        with torch.inference_mode():
            module, _, name = job.part.partition(":")
            found = getattr(
                {"parts": parts, "rnn": rnn, "kernel_tables": kernel_tables}[module], name
            )(job)
        return Answer(ours.isa(), 0.0, found)

    monkeypatch.setattr(runner, "run", run)
    monkeypatch.setattr(ours, "linear", lambda w, bias, group=0: peers.torch_linear(w, bias, 1))
    monkeypatch.setattr(ours, "linear_module", peers.torch_linear_module)
    monkeypatch.setattr(ours, "linear_of", lambda recipe, *layer: peers.torch_linear(*layer, 1))
    monkeypatch.setattr(
        ours, "kernel", lambda *layer: lambda x: peers.torch_linear(*layer, 1)(x).run
    )
    monkeypatch.setattr(ours, "conv", lambda *layer: peers.torch_conv(*layer, 1))
    monkeypatch.setattr(ours, "recurrent", lambda *layer: peers_rnn.torch_float(*layer, 1))
    monkeypatch.setattr(ours, "peak_gops", lambda isa, seconds=0.2, threads=1: 1000.0 * threads)
    monkeypatch.setattr(ours, "read_gbps", lambda array: 10.0)
    monkeypatch.setattr(limits, "peak_gops", lambda: 1000.0)
    monkeypatch.setattr(limits, "read_gbps", lambda size, threads: 10.0)
    monkeypatch.setattr(limits, "part_seconds", lambda part, rows, columns: rows * columns * 1e-9)
    monkeypatch.setattr(ours, "isa", lambda: "avx512vnni")
    monkeypatch.setattr(ours, "isas", lambda: (*kernel_tables.LEAST, "avx2", "reference"))
    monkeypatch.setattr(ours, "use_isa", lambda name: None)
    monkeypatch.setattr(ours, "set_num_threads", lambda threads: None)
    monkeypatch.setattr(parts, "WIDTH", 64)
    monkeypatch.setattr(parts, "last_cache_bytes", lambda: 4 * 64 * 64)
    for module in ("kernels.peers", "parts.peers"):
        for name in ("OPENVINO", "TORCH_X86", "TORCH_ONEDNN"):
            monkeypatch.setattr(f"benchmarks.{module}.{name}", "ONNX Runtime int8")
    monkeypatch.setattr("benchmarks.kernels.BEST_OF", PEERS)
    monkeypatch.setattr("benchmarks.kernels.ALTERNATING", ((4, 64, 64),))
    monkeypatch.setattr("benchmarks.kernels.CONVOLUTIONS", ((3, 8, 6, 1), (1, 8, 6, 1)))
    monkeypatch.setattr("benchmarks.kernels.DEPTHWISE", ((3, 8, 6, 8),))
    monkeypatch.setattr(parts, "idle", lambda: None)
    monkeypatch.setattr(kernel_tables, "idle", lambda: None)
    monkeypatch.setattr(kernel_tables, "RECIPE_WIDTH", 64)
    monkeypatch.setattr(kernel_tables, "interleave", partial(interleave, least=0.0, warmup=0))
    monkeypatch.setattr(parts, "ROUND", 0.0)
    monkeypatch.setattr(parts, "interleave", partial(interleave, least=0.0, warmup=0))
    return jobs


@pytest.mark.parametrize(
    ("part", "asked"),
    [
        ("linear", ["at least 1.6 x", "at least 1.1 x", "at least 1 x", "at least 1.2 x"]),
        ("avx2", ["at least 2 x"]),
        ("conv", ["at least 1.2 x"]),
        ("tables", ["at least 1.7 x", "at least 1 x"]),
        ("peak", ["at least 0.9"]),
        ("groups", ["at least 0.85"]),
        ("bandwidth", ["at least 0.85"]),
        ("threads", ["at least 1.8"]),
        ("alternating", ["at most 1.05"]),
    ],
)
def test_rows_of_a_part(part: str, asked: list[str]) -> None:
    of = {**kernels.PARTS, "tables": kernel_tables.sections}[part]
    cells = WIDE if part in ("groups", "peak", "threads") else CELLS
    rows = list(of(Effort(quick=True, cells=cells, has_amx=False)))
    assert all(row.measured > 0 or "other programs" in row.what for row in rows)
    assert {row.asked for row in rows} - {"", "at most 0.1"} == set(asked)
    assert rows[0].what == "cores that other programs used meanwhile"


@pytest.mark.parametrize(
    ("cell", "threads", "seconds"),
    [
        ((1, 1000, 1000), 1, 1e6 / 10e9),  # the weights' bytes
        ((100, 1000, 1000), 1, 2e8 / 1000e9),  # the operations
        ((100, 1000, 1000), 2, 1e8 / 1000e9),
    ],
)
def test_a_product_takes_its_bytes_or_its_operations(
    cell: tuple[int, int, int], threads: int, seconds: float
) -> None:
    assert limits.product(*cell, threads) == pytest.approx(seconds)


def test_a_limit_is_a_call_and_its_products() -> None:
    times = {OCTAVO: 8.0, "ONNX Runtime int8": 12.0, limits.CALL: 2.0}
    compared = Comparison({name: Timing((t, t), (1.0, 1.0)) for name, t in times.items()})
    found = {"1 x 768 x 768": limits.limited(compared, [1.0, 2.0], [0.5, 0.5])}
    assert found["1 x 768 x 768"][limits.LIMIT].seconds == (5.0, 5.0)
    assert found["1 x 768 x 768"][limits.PARTS].seconds == (6.0, 6.0)
    first, second = figures.limit_rows(found, ["ONNX Runtime int8"], "a call", "rows", "some")
    assert (first.measured, second.measured) == (pytest.approx(2.4), pytest.approx(2.0))
    assert first.asked == second.asked == ""
    expected = "a call, and no more than its products; Octavo is at 0.625 of that speed"
    assert first.note == expected
    expected = "the same, and its parts alone: rows; Octavo is at 0.750 of that speed"
    assert second.note == expected


@pytest.mark.parametrize("kind", peers_rnn.GATES)
def test_recurrent_rows(kind: peers_rnn.Kind) -> None:
    effort = Effort(quick=True, cells=((8, 1, 1, 1), (8, 2, 2, 2)), has_amx=False)
    rows = list(rnn.rows_of(kind, effort))
    bounds = [f"at least {bound:g} x" for bound in rnn.LEAST[kind].values()]
    found = [row.asked for row in rows if row.asked.startswith("at least")]
    assert found == [bounds[0], "at least 1 x", bounds[1], "at least 1 x"]
    assert all("50 steps" in row.section for row in rows if row.asked.startswith("at least"))
