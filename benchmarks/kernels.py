"""The kernel core: linear layers, convolutions, attention beside peers and the machine's limits.

`python -m benchmarks.kernels [--quick] [--only PART ...] [--cells MxKxN ...] [--peers-only]`. Every
setting of threads, AMX and instruction set has a process of its own. The bounds were set on
processors without AMX; where there is one, all is measured with it and once more without.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec

from benchmarks import attention, parts, peers, rows, runner
from benchmarks.machine import amx_granted
from benchmarks.ours import OCTAVO
from benchmarks.results import Row
from benchmarks.runner import Cell, Effort, Job
from octavo.core.kernels import has_bfloat16_products

ROWS = (1, 4, 8, 16, 32, 64, 128, 512)
WEIGHTS = ((384, 384), (384, 1536), (768, 768), (768, 3072), (3072, 768), (1024, 4096))
GRID = tuple((m, k, n) for k, n in (*WEIGHTS, (4096, 4096)) for m in ROWS)
QUICK = ((1, 768, 768), (128, 768, 768))
BEST_OF = (peers.TORCH, peers.TORCH_X86, peers.TORCH_ONEDNN, peers.ONNX, peers.ONNX_INT8)
FEW, MANY = 8, 32  # at most, and at least
LEAST_FEW, LEAST_MANY, LEAST_OPENVINO = 1.6, 1.1, 1.2  # M <= FEW, M >= MANY, all M
NEVER_SLOWER = 1.0
LEAST_AVX2, LEAST_AVX2_MANY = 2.0, 1.6  # all M, M >= 128
LEAST_CONV = 1.2
LEAST_ATTENTION = 1.0
A_CALL = f"a call of a layer of {parts.SMALL} x {parts.SMALL}"
BESIDE = "rows quantized, sums scaled and written"
CONVOLUTIONS = tuple((k, c, size, 1) for k in (3, 1) for c in (64, 256) for size in (28, 56))
DEPTHWISE = tuple((3, c, size, c) for c in (64, 256) for size in (28, 56))
VNNI, AMX, AVX2 = "avx512vnni", "amx", "avx2"
LEAST_OF_PEAK = 0.90  # on AVX512-VNNI
PACKED = ((384, 1536), (4096, 4096), (4090, 4090))  # N, K
ALTERNATING = ((16, 768, 768), (128, 768, 768))
MOST_ALTERNATING = 1.05


@dataclass(frozen=True)
class Share:
    """The time of a call `of` as a share of a call `over`, in each cell of a part, on threads."""

    title: str
    of: str
    over: str
    least: float | None
    cells: Callable[[Effort], tuple[Cell, ...]] = lambda effort: effort.where(32, 768)
    threads: int = 1


SHARES = {
    "groups": (
        Share("Linear, groups of 128, share of the per-row speed", parts.ROWS, parts.GROUPS, 0.85),
    ),
    "bandwidth": (
        Share(
            "Linear, weights beyond the last cache, share of a plain read's bandwidth",
            *(parts.READ, OCTAVO, 0.85, lambda effort: ()),
        ),
    ),
    # Into new memory, as the copy; packing takes all cores: the child of one thread has one.
    "packing": tuple(
        Share(
            "Packing, share of a copy's speed", parts.COPY, name, least, lambda e: PACKED, threads
        )
        for threads, least in ((1, 0.85), (2, None))
        for name in (parts.PACK, parts.UNPACK)
    ),
    "scaling": (
        Share(
            "Linear, speed over one thread",
            *(parts.ONE, parts.TWO, 1.8, lambda effort: effort.where(64, 768), 2),
        ),
    ),
}


def linear_rows(effort: Effort) -> Iterator[Row]:
    """The grid against all peers, on one thread and on two."""
    for threads in (1, 2):
        job = Job("parts:linear", effort.cells, threads, peers=(*BEST_OF, peers.OPENVINO))
        for section, answer in effort.settings("Linear", job):
            yield from rows.machine_rows(answer, section)
            shown = grid_rows if effort.ours else rows.time_rows
            yield from shown(answer.found, section)


def grid_rows(found: rows.Found, section: str) -> Iterator[Row]:
    """What is asked for first, then the cells."""
    best = rows.speeds(found, OCTAVO, BEST_OF)
    what = "best of PyTorch and ONNX Runtime"
    for among, which, least in (
        ([speed for speed in best if rows_of(speed) <= FEW], f"M <= {FEW}", LEAST_FEW),
        ([speed for speed in best if rows_of(speed) >= MANY], f"M >= {MANY}", LEAST_MANY),
    ):
        if among:
            yield rows.mean_row(f"{what}, {which}", among, least, section)
            cells = {speed.cell: found[speed.cell] for speed in among}
            yield from rows.limit_rows(cells, BEST_OF, A_CALL, BESIDE, section)
    yield rows.slowest_row(what, best, NEVER_SLOWER, section)
    other = rows.speeds(found, OCTAVO, [peers.OPENVINO])
    yield rows.mean_row(peers.OPENVINO, other, LEAST_OPENVINO, section)
    yield rows.slowest_row(peers.OPENVINO, other, NEVER_SLOWER, section)
    yield from rows.cell_rows(found, OCTAVO, [*BEST_OF, peers.OPENVINO], section)


def avx2_rows(effort: Effort) -> Iterator[Row]:
    """Octavo's exact AVX2 kernel, PyTorch's float one held to AVX2."""
    job = Job("parts:linear", effort.cells, amx=not effort.has_amx, held=AVX2, peers=(peers.TORCH,))
    job = replace(job, isa=AVX2 if effort.ours else "")
    section, answer = effort.ask("Linear, all held to AVX2, one thread", job)
    yield from rows.machine_rows(answer, section)
    if not effort.ours:
        yield from rows.time_rows(answer.found, section)
        return
    each = rows.speeds(answer.found, OCTAVO, [peers.TORCH])
    yield rows.mean_row(peers.TORCH, each, LEAST_AVX2, section)
    if many := [speed for speed in each if rows_of(speed) >= 128]:
        yield rows.mean_row(f"{peers.TORCH}, M >= 128", many, LEAST_AVX2_MANY, section)
    yield from rows.cell_rows(answer.found, OCTAVO, [peers.TORCH], section)


def conv_rows(effort: Effort) -> Iterator[Row]:
    """Convolutions of batch 1; depthwise ones for information."""
    asked = CONVOLUTIONS[::3] if effort.quick else CONVOLUTIONS
    others = DEPTHWISE[:1] if effort.quick else DEPTHWISE
    bounded = {parts.conv_label(cell) for cell in asked}
    for section, answer in effort.settings("Conv2d", Job("parts:conv", (*asked, *others))):
        yield from rows.machine_rows(answer, section)
        if not effort.ours:
            yield from rows.time_rows(answer.found, section)
            continue
        for row in rows.cell_rows(answer.found, OCTAVO, [peers.ONNX], section):
            yield replace(row, at_least=LEAST_CONV) if row.what in bounded else row


def attention_rows(effort: Effort) -> Iterator[Row]:
    """Float attention on one thread and on two."""
    for threads in (1, 2):
        cells = attention.CELLS[::5] if effort.quick else attention.CELLS
        job = Job("attention:attention", cells, threads)
        for section, answer in effort.settings("Attention, float", job):
            yield from rows.machine_rows(answer, section)
            if not effort.ours:
                yield from rows.time_rows(answer.found, section)
                continue
            for cell, found in answer.found.items():
                over = [name for name in found.timings if name != OCTAVO]
                for row in rows.cell_rows({cell: found}, OCTAVO, over, section):
                    yield replace(row, at_least=LEAST_ATTENTION)


def bfloat16_rows(effort: Effort) -> Iterator[Row]:
    """Attention as a recipe with `attention: bfloat16` has it, one thread."""
    cells = attention.MANY[::3] if effort.quick else attention.MANY
    section, answer = effort.ask(
        "Attention in bfloat16, one thread", Job("attention:in_bfloat16", cells)
    )
    yield from rows.machine_rows(answer, section)
    over = [attention.FLOAT32, peers.TORCH, attention.TORCH_BFLOAT16, peers.ONNX]
    for row in rows.cell_rows(answer.found, OCTAVO, over, section):
        asked = LEAST_ATTENTION if has_bfloat16_products() else None
        yield replace(row, at_least=asked)


def peak_rows(effort: Effort) -> Iterator[Row]:
    """Shares of one core's peak, all that a kernel does included; asked of AVX512-VNNI."""
    for isa in (VNNI, AMX, AVX2) if effort.has_amx else (VNNI, AVX2):
        amx = isa == AMX or not effort.has_amx
        job = Job("parts:peak", effort.where(32, 768), amx=amx, isa=isa)
        title = f"Linear, share of the peak of {isa}, fastest call of a round, one thread"
        section, answer = effort.ask(title, job)
        yield from rows.machine_rows(answer, section)
        found = answer.found
        shares = {cell: f.time(parts.PEAK, over=parts.FASTEST) for cell, f in found.items()}
        yield from rows.share_rows(shares, LEAST_OF_PEAK if isa == VNNI else None, found, section)
        means = [f.time(parts.PEAK, over=OCTAVO).median for f in found.values()]
        yield Row(f"of mean calls: least of {len(means)}", min(means), section=section)


def share_rows(part: str, effort: Effort) -> Iterator[Row]:
    """Those of SHARES; calls of one child are measured together."""
    first = {(share.title, share.threads): share for share in SHARES[part]}
    for (title, threads), share in first.items():
        job = Job(f"parts:{part}", share.cells(effort), threads)
        together = [s for s in SHARES[part] if (s.title, s.threads) == (title, threads)]
        for section, answer in effort.settings(title, job):
            yield from rows.machine_rows(answer, section)
            for s in together:
                named = f"{s.over} " if len(together) > 1 else ""
                found = {named + cell: compared for cell, compared in answer.found.items()}
                shares = {
                    cell: compared.time(s.of, over=s.over) for cell, compared in found.items()
                }
                yield from rows.share_rows(shares, s.least, found, section)


def alternating_rows(effort: Effort) -> Iterator[Row]:
    """Octavo's threads and PyTorch's in one program."""
    job = Job("parts:alternating", ALTERNATING, threads=2)
    for section, answer in effort.settings("Octavo and PyTorch by turns", job):
        yield from rows.machine_rows(answer, section)
        for cell, found in answer.found.items():
            share = found.time(parts.ALTERNATING, over=parts.APART)
            note = f"quartiles {share.low:.3f} to {share.high:.3f}; {rows.times(found)}"
            what = f"{cell}, time as a share of both alone"
            yield Row(what, share.median, section=section, note=note)
            if cell.endswith(parts.ONE_THREAD):
                continue
            one = answer.found[cell + parts.ONE_THREAD].time(parts.ALTERNATING, over=parts.APART)
            what = f"{cell}, that share over one thread's"
            ratio = share.median / one.median
            yield Row(what, ratio, at_most=MOST_ALTERNATING, section=section)


def rows_of(speed: rows.Speed) -> int:
    """M."""
    return parts.cell_of(speed.cell)[0]


PARTS: dict[str, Callable[[Effort], Iterator[Row]]] = {
    "linear": linear_rows,
    "avx2": avx2_rows,
    "conv": conv_rows,
    "attention": attention_rows,
    "bfloat16": bfloat16_rows,
    "peak": peak_rows,
    "groups": partial(share_rows, "groups"),
    "bandwidth": partial(share_rows, "bandwidth"),
    "packing": partial(share_rows, "packing"),
    "threads": partial(share_rows, "scaling"),
    "alternating": alternating_rows,
}
WITH_PEERS = ("linear", "avx2", "conv", "attention")


def cell(text: str) -> Cell:
    """`8x768x3072`: M, K, N."""
    m, k, n = map(int, text.split("x"))
    return m, k, n


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and keeps the rows."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = runner.parser("kernels", __doc__)
    parser.add_argument("--cells", nargs="+", type=cell, help="writes no result", metavar="MxKxN")
    parser.add_argument("--peers-only", action="store_true", help="writes no result")
    options = parser.parse_args(arguments)
    chosen = WITH_PEERS if options.peers_only else tuple(PARTS)
    missing = [name for name in ("openvino", "nncf") if find_spec(name) is None]
    if missing and (not options.only or "linear" in options.only):
        parser.error(
            f"linear layers are measured beside OpenVINO, which needs {' and '.join(missing)}: "
            "pip install -e '.[dev,bench]', or make bench"
        )
    cells = tuple(options.cells or (QUICK if options.quick else GRID))
    effort = Effort(options.quick, cells, not options.peers_only, amx_granted())
    runner.publish(
        *("kernels", "Kernels: linear layers, convolutions and attention"),
        {part: partial(PARTS[part], effort) for part in chosen},
        *(options, arguments),
        speeds=True,
        partial=bool(options.cells or options.peers_only),
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
