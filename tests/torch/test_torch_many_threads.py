"""Threads beside PyTorch's: none begins or ends from layer to layer, none too many works."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import fresh

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
MOST_LOSS = 1.5  # of 16 threads that are asked for, over the best number
PRELUDE = """
import os, torch
import octavo.torch
from octavo.core import kernels

def tasks():
    return set(os.listdir("/proc/self/task"))

def layers(*widths):
    model = torch.nn.Sequential(*(torch.nn.Linear(512, w) for w in widths))
    return [octavo.torch.quantize_dynamic(torch.nn.Sequential(m)) for m in model]

torch.set_grad_enabled(False)
"""


def child(code: str, **environment: str) -> str:
    inherited = {
        n: v for n, v in os.environ.items() if n not in ("OCTAVO_PROCESSORS", "OMP_NUM_THREADS")
    }
    return fresh.python(PRELUDE + code, env=inherited | environment, cwd=ROOT).stdout.strip()


def test_no_thread_begins_or_ends_from_layer_to_layer() -> None:
    """Whatever number of threads each layer pays for, and PyTorch's own regions between."""
    code = """
torch.set_num_threads(4)
kernels.set_num_threads(4)
assert kernels.thread_backend() == "openmp"
several = layers(64, 256, 512, 1024)
x = torch.randn(64, 512)
def run():
    for layer in several:
        layer(x)
        layer(x[:16])
        torch.randn(400, 400).exp()
run()
before = tasks()
for _ in range(20):
    run()
print(len(before - tasks()), len(tasks() - before))
"""
    assert child(code, OCTAVO_PROCESSORS="64") == "0 0"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinities")
def test_no_more_threads_work_than_there_are_processors() -> None:
    code = """
os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])
torch.set_num_threads(1)
(layer,) = layers(2048)
x = torch.randn(64, 512)
layer(x)
before = tasks()
torch.set_num_threads(16)
kernels.set_num_threads(16)
assert kernels.thread_backend() == "pool", kernels.thread_backend()
for _ in range(300):  # the number of processors is asked for now and then
    layer(x)
print(len(tasks() - before))
"""
    assert child(code) == "0"


def test_a_call_inside_of_an_openmp_region_works_alone() -> None:
    """As a layer called from an operator that PyTorch runs on its threads."""
    code = """
import ctypes
from pathlib import Path
torch.set_num_threads(2)
kernels.set_num_threads(2)
(layer,) = layers(1024)
x = torch.randn(64, 512)
exact = layer(x)
gomp = ctypes.PyDLL(str(next(Path(torch.__file__).parent.glob("lib/libgomp*"))))
seen = []
@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def region(_):
    seen.append(torch.equal(layer(x), exact))
gomp.GOMP_parallel(region, None, 1, 0)
print(seen)
"""
    assert child(code, OCTAVO_PROCESSORS="64") == "[True]"


@pytest.mark.slow
@pytest.mark.models
@pytest.mark.real_time
def test_more_threads_than_processors_lose_little() -> None:
    """Sixteen that are asked for, against the best number; PyTorch's own regions included."""
    processors = len(os.sched_getaffinity(0))
    if processors > 8:
        pytest.skip("sixteen threads are no crowd here")
    code = f"""
from benchmarks import thread_counts
counts = sorted({{1, 2, {processors}, 16}})
for name, call in thread_counts.models(1).items():
    times = thread_counts.compare({{"": call}}, counts, 7)
    took = {{n: times[thread_counts.turn("", n)].median for n in counts}}
    print(name.replace(" ", ""), took[16] / min(took.values()))
"""
    losses = dict(line.split() for line in child(code).splitlines())
    assert len(losses) == 5
    assert {name: loss for name, loss in losses.items() if float(loss) > MOST_LOSS} == {}
