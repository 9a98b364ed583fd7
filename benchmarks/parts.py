"""What the children of `benchmarks.kernels` measure: one function for each part.

A comparison holds the calls by name; a limit of the machine is there as the time that the call
would take at that limit, read in each round, so that shares are ratios like all others.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import cores, limits, ours, peers
from benchmarks.ours import OCTAVO
from benchmarks.peers import Bound, Float32, Layer
from benchmarks.runner import Cell, Job
from octavo.measure.timing import Comparison, Timing, idle, interleave, pooled

PEAK, FASTEST, READ = "peak", "fastest call", "plain read"
ROWS, GROUPS, GROUP = "per row", "groups of 128", 128
PACK, UNPACK, COPY = "pack", "unpack", "copy"
ONE, TWO = "one thread", "two threads"
ALTERNATING, APART = "alternating", "octavo and torch apart"
ONE_THREAD = ", one thread"
STEPS = 4  # layers in the alternating program
ROUND, LEAST_CALLS = 0.02, 5  # seconds of calls, and how many at least
SPREAD = 4  # times as many rounds of what stands beside no peer and takes less time
UNIT = 2  # rounds made at once: of them every second runs backwards
WIDTH = 4096  # of the layers that are larger than the last cache together
SMALL = 16  # the width of a call's layer


def label(cell: Cell) -> str:
    """`8 x 768 x 3072`: M, K, N."""
    return " x ".join(map(str, cell))


def cell_of(text: str) -> Cell:
    """The inverse of `label`."""
    return tuple(map(int, text.split(" x ")))


def weights(outputs: int, inputs: int) -> tuple[Float32, Float32]:
    """Weight [outputs, inputs] and bias, such that outputs are about as large as inputs."""
    random = np.random.default_rng(outputs + inputs)
    w = random.standard_normal((outputs, inputs), np.float32) / np.float32(inputs**0.5)
    return w, random.standard_normal(outputs, np.float32)


def activations(*shape: int) -> Float32:
    """Normal inputs."""
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


def compare(bound: Mapping[str, Bound], rounds: int) -> Comparison:
    """The calls in turn, each with the cores to itself."""
    calls = {name: layer.run for name, layer in bound.items()}
    return interleave(calls, rounds=rounds, settle=lambda name: idle())


def by_weight(cells: tuple[Cell, ...]) -> Iterator[tuple[tuple[int, int], list[int]]]:
    """The cells' (K, N), and the Ms asked of each: packing takes longer than measuring."""
    for k, n in dict.fromkeys((k, n) for _, k, n in cells):
        yield (k, n), [m for m, *other in cells if other == [k, n]]


def in_passes(
    measures: Mapping[str, Callable[[], Comparison]], passes: int
) -> dict[str, Comparison]:
    """All rounds of each of `measures`, which are made one after the other, `passes` times over.

    What disturbs the machine does so for seconds. That costs a few rounds of each, and not all
    rounds of one.
    """
    made: dict[str, list[Comparison]] = {name: [] for name in measures}
    for _ in range(passes):
        for name, measure in measures.items():
            made[name].append(measure())
    return {name: pooled(rounds) for name, rounds in made.items()}


def linear(job: Job) -> dict[str, Comparison]:
    """Octavo's layer and the job's peers, and what bounds it."""
    measures = {}
    call = ours.linear(*weights(SMALL, SMALL))(activations(1, SMALL)) if job.ours else None
    for (k, n), ms in by_weight(job.cells):
        w, bias = weights(n, k)
        layers: dict[str, Layer] = {OCTAVO: ours.linear(w, bias)} if job.ours else {}
        layers |= {name: peers.LINEAR[name](w, bias, job.threads) for name in job.peers}
        for m in ms:
            x = activations(m, k)
            bound = {name: layer(x) for name, layer in layers.items()}
            bound |= {limits.CALL: call} if call else {}
            unit = partial(compare, bound, UNIT)
            measures[label((m, k, n))] = partial(cores.measured, unit, job.threads)
    found = in_passes(measures, math.ceil(job.rounds / UNIT))
    return {cell: _limited(cell, f, job.threads) for cell, f in found.items()} if call else found


def _limited(cell: str, found: Comparison, threads: int) -> Comparison:
    work = *cell_of(cell), threads
    return limits.limited(found, [limits.product(*work)], [limits.beside(*work)])


def peak(job: Job) -> dict[str, Comparison]:
    """The layer's kernel, and the time that its products would take at the peak of one core.

    The peak is the fastest of many short loops, so what it is held against is the fastest of the
    calls in each round (FASTEST): a core that another guest of the machine slows down meanwhile is
    slower for both. What the mean call took stands beside it.
    """
    measures = {}
    for (k, n), ms in by_weight(job.cells):
        layer = ours.kernel(*weights(n, k))
        for m in ms:
            run = layer(activations(m, k))
            measures[label((m, k, n))] = partial(_share_of_peak, run, 2 * m * k * n)
    return in_passes(measures, job.rounds)


def _share_of_peak(run: Callable[[], object], operations: int) -> Comparison:
    """One round of `peak`."""
    run()
    fastest, mean = _fastest(run)
    seconds = {FASTEST: fastest, OCTAVO: mean, PEAK: operations / ours.peak_gops(ours.isa()) / 1e9}
    return Comparison({name: Timing((s,), (1.0,)) for name, s in seconds.items()})


def _fastest(run: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the fastest of a round's calls, and of the mean one."""
    idle()
    clock = time.perf_counter
    begin = last = clock()
    fastest, calls = math.inf, 0
    while calls < LEAST_CALLS or last - begin < ROUND:
        run()
        now = clock()
        fastest, last, calls = min(fastest, now - last), now, calls + 1
    return fastest, (last - begin) / calls


def bandwidth(job: Job) -> dict[str, Comparison]:
    """One row through layers that the last cache cannot hold, and a read of as many bytes."""
    count = math.ceil(2 * last_cache_bytes() / WIDTH**2)
    w, bias = weights(WIDTH, WIDTH)
    x = activations(1, WIDTH)
    bound = [ours.linear(w, bias)(x) for _ in range(count)]
    plain = np.ones(count * WIDTH**2, np.uint8)

    def run() -> None:
        for layer in bound:
            layer.run()

    def limit() -> float:
        return plain.nbytes / ours.read_gbps(plain) / 1e9

    name = f"{count} layers of 1 x {WIDTH} x {WIDTH}, {plain.nbytes / 1e6:.0f} MB"
    return {name: against_limit(run, READ, limit, job.rounds)}


def against_limit(
    run: Callable[[], object], name: str, limit: Callable[[], float], rounds: int
) -> Comparison:
    """`run`, and the seconds that `limit` finds for it, read in each round."""
    readings: list[float] = []

    def settle(call: str) -> None:
        idle()
        readings.append(limit())

    found = interleave({OCTAVO: run}, rounds=rounds, settle=settle)
    at_limit = Timing(tuple(readings[-rounds:]), (1.0,) * rounds)
    return Comparison({**found.timings, name: at_limit})


def last_cache_bytes() -> int:
    """Of the largest cache that a core sees."""
    sizes = [path.read_text() for path in Path("/sys/devices/system/cpu").glob("cpu0/cache/*/size")]
    return max([int(size.strip().removesuffix("K")) * 1024 for size in sizes], default=32 << 20)


def groups(job: Job) -> dict[str, Comparison]:
    """Octavo's layer with one scale for each row of activations, and for each 128 of a row."""
    found = {}
    for (k, n), ms in by_weight(job.cells):
        w, bias = weights(n, k)
        layers = {ROWS: ours.linear(w, bias), GROUPS: ours.linear(w, bias, GROUP)}
        for m in ms:
            x = activations(m, k)
            bound = {name: layer(x) for name, layer in layers.items()}
            found[label((m, k, n))] = compare(bound, SPREAD * job.rounds)
    return found


def packing(job: Job) -> dict[str, Comparison]:
    """Weights int8 [N, K] packed, unpacked and copied, each into new memory as callers have it."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: job.threads])
    found = {}
    for n, k in job.cells:
        q = np.random.default_rng(n + k).integers(-127, 128, (n, k), np.int8)
        packed = ours.pack(q)
        calls: dict[str, Callable[[], object]] = {
            PACK: partial(ours.pack, q),
            UNPACK: partial(ours.unpack, packed, n, k),
            COPY: q.copy,
        }
        compared = interleave(calls, rounds=job.rounds, settle=lambda name: idle())
        found[label((n, k))] = compared
    return found


def scaling(job: Job) -> dict[str, Comparison]:
    """Octavo's layer on one thread and on two."""
    threads = {ONE: 1, TWO: 2}

    def settle(name: str) -> None:
        idle()
        ours.set_num_threads(threads[name])

    measures = {}
    for (k, n), ms in by_weight(job.cells):
        layer = ours.linear(*weights(n, k))
        for m in ms:
            calls = dict.fromkeys(threads, layer(activations(m, k)).run)
            measure = partial(interleave, calls, rounds=SPREAD, settle=settle)
            measures[label((m, k, n))] = partial(cores.measured, measure, job.threads)
    return in_passes(measures, job.rounds)


def alternating(job: Job) -> dict[str, Comparison]:
    """A program of Octavo's layers and PyTorch's operators by turns, and each half alone.

    With the job's threads, and with one: by turns the halves also take each other's cache, and what
    that costs shows at one thread, where no pools can fight.
    """
    import torch

    found = {}
    for (k, n), ms in by_weight(job.cells):
        layers = [ours.linear_module(*weights(n, k)) for _ in range(STEPS)]
        for m in ms:
            x = torch.from_numpy(activations(m, k))
            for threads in (1, job.threads):
                torch.set_num_threads(threads)
                ours.set_num_threads(threads)
                name = label((m, k, n)) + (ONE_THREAD if threads == 1 else "")
                found[name] = cores.measured(partial(_by_turns, layers, x, job.rounds), threads)
    return found


def _by_turns(layers: list[Any], x: Any, rounds: int) -> Comparison:
    calls = {
        OCTAVO: partial(_each, [partial(layer, x) for layer in layers]),
        "torch": partial(_each, [partial(_attention, x)] * STEPS),
        ALTERNATING: partial(_program, layers, x),
    }
    compared = interleave(calls, rounds=rounds, settle=lambda name: idle())
    halves = zip(compared[OCTAVO].seconds, compared["torch"].seconds, strict=True)
    apart = Timing(tuple(map(sum, halves)), compared["torch"].cores)
    return Comparison({**compared.timings, APART: apart})


def _each(calls: list[Callable[[], object]]) -> None:
    for call in calls:
        call()


def _program(layers: list[Any], x: Any) -> Any:
    for layer in layers:
        x = _attention(layer(x))
    return x


def _attention(x: Any) -> Any:
    """Layer norm, a float product, softmax, a float product: what lies between linear layers.

    Scores are scaled to -1..1: beyond, softmax makes subnormal numbers, and those are slow.
    """
    import torch

    normal = torch.nn.functional.layer_norm(x, x.shape[-1:])
    return torch.softmax(normal @ normal.T / x.shape[-1], dim=-1) @ normal


def conv_label(cell: Cell) -> str:
    """Of (kernel, channels, size, groups)."""
    kernel, channels, size, of = cell
    kind = "depthwise " if of > 1 else ""
    return f"{kind}{kernel} x {kernel}, {channels} channels, {size} x {size}"


def conv(job: Job) -> dict[str, Comparison]:
    """Octavo's convolution and ONNX Runtime's float one, batch 1."""
    found = {}
    for cell in job.cells:
        kernel, channels, size, of = cell
        w, bias = weights(channels, channels // of * kernel**2)
        w = w.reshape(channels, channels // of, kernel, kernel)
        x = activations(1, channels, size, size)
        layers = {OCTAVO: ours.conv(w, bias, kernel // 2, of)} if job.ours else {}
        layers[peers.ONNX] = peers.onnx_conv(w, bias, kernel // 2, of, job.threads)
        bound = {name: layer(x) for name, layer in layers.items()}
        found[conv_label(cell)] = compare(bound, job.rounds)
    return found
