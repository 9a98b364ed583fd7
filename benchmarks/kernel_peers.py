"""Rows of `benchmarks.kernels` that compare Octavo with peers: linear layers and convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from benchmarks import parts, peers, ratios
from benchmarks.children import Job
from benchmarks.effort import Effort
from benchmarks.ours import OCTAVO
from benchmarks.results import Row

BEST_OF = (peers.TORCH, peers.TORCH_X86, peers.TORCH_ONEDNN, peers.ONNX, peers.ONNX_INT8)
FEW, MANY = 8, 32  # at most, and at least
LEAST_FEW, LEAST_MANY, LEAST_OPENVINO = 1.6, 1.1, 1.2  # M <= FEW, M >= MANY, all M
NEVER_SLOWER = 1.0
LEAST_AVX2, LEAST_AVX2_MANY = 2.0, 1.6  # all M, M >= 128
LEAST_CONV = 1.2
A_CALL = f"a call of a layer of {parts.SMALL} x {parts.SMALL}"
BESIDE = "rows quantized, sums scaled and written"
CONVOLUTIONS = tuple((k, c, size, 1) for k in (3, 1) for c in (64, 256) for size in (28, 56))
DEPTHWISE = tuple((3, c, size, c) for c in (64, 256) for size in (28, 56))


def linear_rows(effort: Effort) -> Iterator[Row]:
    """The grid against all peers, on one thread and on two."""
    for threads in (1, 2):
        job = Job("linear", effort.cells, threads, peers=(*BEST_OF, peers.OPENVINO))
        for section, answer in effort.settings("Linear", job):
            yield from ratios.machine_rows(answer, section)
            rows = grid_rows if effort.ours else ratios.time_rows
            yield from rows(answer.found, section)


def grid_rows(found: ratios.Found, section: str) -> Iterator[Row]:
    """What is asked for first, then the cells."""
    best = ratios.speeds(found, OCTAVO, BEST_OF)
    what = "best of PyTorch and ONNX Runtime"
    few = [speed for speed in best if rows_of(speed) <= FEW]
    many = [speed for speed in best if rows_of(speed) >= MANY]
    for among, which, least in (
        (few, f"M <= {FEW}", LEAST_FEW),
        (many, f"M >= {MANY}", LEAST_MANY),
    ):
        if among:
            yield ratios.mean_row(f"{what}, {which}", among, least, section)
            cells = {speed.cell: found[speed.cell] for speed in among}
            yield from ratios.limit_rows(cells, BEST_OF, A_CALL, BESIDE, section)
    yield ratios.slowest_row(what, best, NEVER_SLOWER, section)
    other = ratios.speeds(found, OCTAVO, [peers.OPENVINO])
    yield ratios.mean_row(peers.OPENVINO, other, LEAST_OPENVINO, section)
    yield ratios.slowest_row(peers.OPENVINO, other, NEVER_SLOWER, section)
    yield from ratios.cell_rows(found, OCTAVO, [*BEST_OF, peers.OPENVINO], section)


def avx2_rows(effort: Effort) -> Iterator[Row]:
    """Octavo's exact AVX2 kernel, PyTorch's float one held to AVX2."""
    job = Job("linear", effort.cells, amx=not effort.has_amx, avx2=True, peers=(peers.TORCH,))
    job = replace(job, isa="avx2" if effort.ours else "")
    section, answer = effort.ask("Linear, all held to AVX2, one thread", job)
    yield from ratios.machine_rows(answer, section)
    found = answer.found
    if not effort.ours:
        yield from ratios.time_rows(found, section)
        return
    each = ratios.speeds(found, OCTAVO, [peers.TORCH])
    yield ratios.mean_row(peers.TORCH, each, LEAST_AVX2, section)
    if many := [speed for speed in each if rows_of(speed) >= 128]:
        yield ratios.mean_row(f"{peers.TORCH}, M >= 128", many, LEAST_AVX2_MANY, section)
    yield from ratios.cell_rows(found, OCTAVO, [peers.TORCH], section)


def conv_rows(effort: Effort) -> Iterator[Row]:
    """Convolutions of batch 1; depthwise ones for information."""
    asked = CONVOLUTIONS[::3] if effort.quick else CONVOLUTIONS
    others = DEPTHWISE[:1] if effort.quick else DEPTHWISE
    bounded = {parts.conv_label(cell) for cell in asked}
    for section, answer in effort.settings("Conv2d", Job("conv", (*asked, *others))):
        yield from ratios.machine_rows(answer, section)
        if not effort.ours:
            yield from ratios.time_rows(answer.found, section)
            continue
        for row in ratios.cell_rows(answer.found, OCTAVO, [peers.ONNX], section):
            yield replace(row, at_least=LEAST_CONV) if row.what in bounded else row


def rows_of(speed: ratios.Speed) -> int:
    """M."""
    return parts.cell_of(speed.cell)[0]
