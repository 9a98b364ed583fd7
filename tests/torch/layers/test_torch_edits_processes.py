"""Writes that come from another process: DistributedDataParallel's broadcast, shared memory."""

from __future__ import annotations

import multiprocessing
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from octavo.torch import quantize_dynamic


def model(seed: int) -> Any:
    """A quantized layer behind a float one, which trains."""
    torch.manual_seed(seed)
    return quantize_dynamic(nn.Sequential(nn.Linear(64, 48), nn.Linear(48, 40)), {"0"})


def _wrapped(rank: int, store: str, sent: Any) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    mine, x = model(rank), torch.ones(3, 64)
    mine(x)  # bound before rank 0 has its say
    parallel = nn.parallel.DistributedDataParallel(mine)
    sent.put((rank, mine[0](x).numpy(), parallel(x).detach().numpy()))
    torch.distributed.destroy_process_group()


@pytest.mark.skipif(not torch.distributed.is_available(), reason="built without")
def test_what_rank_0_broadcasts_counts(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    sent = context.Queue()
    store = str(tmp_path / "store")
    workers = [context.Process(target=_wrapped, args=(r, store, sent)) for r in (0, 1)]
    for worker in workers:
        worker.start()
    found = {rank: outputs for rank, *outputs in (sent.get(timeout=120) for _ in workers)}
    for worker in workers:
        worker.join()
    expected = model(0)[0](torch.ones(3, 64))
    for rank in (0, 1):
        assert torch.equal(torch.from_numpy(found[rank][0]), expected)
    assert (found[0][1] == found[1][1]).all()


def _write(layer: Any, other: Any) -> None:
    for to, value in zip(layer.buffers(), other.buffers(), strict=True):
        to.copy_(value)


def test_what_another_process_writes_into_shared_memory_counts() -> None:
    layer, other, x = model(0)[0].share_memory(), model(1)[0], torch.randn(3, 64)
    before = layer(x)
    worker = multiprocessing.get_context("spawn").Process(target=_write, args=(layer, other))
    worker.start()
    worker.join()
    assert worker.exitcode == 0
    assert torch.equal(layer(x), other(x)) and not torch.equal(before, other(x))
