"""What the children of `benchmarks.torch_models` measure: modules of one model by turns.

A job's peers are the variants, in the order in which they are made; the modules are made as users
make them, outside inference mode.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import torch_variants
from benchmarks.children import Job
from benchmarks.timing import Comparison, idle, interleave
from benchmarks.torch_variants import AO, OCTAVO
from benchmarks.zoo import g2p, minilm, nano_ocr

if TYPE_CHECKING:
    import torch

PRETRAINED, PRETRAINED_AO = "from_pretrained", "from_pretrained and torch.ao"
Calls = dict[str, Callable[[], object]]


def _modules(job: Job, model: Callable[[], torch.nn.Module]) -> dict[str, torch.nn.Module]:
    import torch

    with torch.inference_mode(False):
        exact = model()
        return {name: torch_variants.quantized(name, exact) for name in job.peers}


def _compare(calls: Calls, job: Job) -> Comparison:
    """All modules use PyTorch's own pool, which spins on for a while after a call."""
    settle = None if job.threads == 1 else lambda name: idle()
    return interleave(calls, rounds=job.rounds, settle=settle)


def minilm_label(batch: int, length: int) -> str:
    """`8x128`."""
    return f"{batch}x{length}"


def _minilm(job: Job) -> dict[str, Comparison]:
    """all-MiniLM-L6, eager; a cell is batch and length, all of it real tokens."""
    import torch

    made, found = _modules(job, partial(minilm.torch_model, minilm.SERVED)), {}
    for batch, length in job.cells:
        torch.manual_seed(0)
        tokens = torch.randint(1000, 30000, (batch, length))
        feed = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        feed["token_type_ids"] = torch.zeros_like(tokens)
        calls: Calls = {name: partial(module, **feed) for name, module in made.items()}
        found[minilm_label(batch, length)] = _compare(calls, job)
    return found


def g2p_label(count: int) -> str:
    return f"{count} words, one by one"


def _g2p(job: Job) -> dict[str, Comparison]:
    """g2p-en; a cell is how many words."""
    made, found = _modules(job, g2p.torch_model), {}
    for (count,) in job.cells:
        calls: Calls = {n: partial(g2p.decode, m, g2p.words(count)) for n, m in made.items()}
        found[g2p_label(count)] = _compare(calls, job)
    return found


def ocr_label(count: int) -> str:
    return f"{count} image{'s' * (count > 1)}"


def _ocr(job: Job) -> dict[str, Comparison]:
    """nano-ocr; a cell is how many images at once."""
    made, found = _modules(job, nano_ocr.torch_model), {}
    for (count,) in job.cells:
        pixels = nano_ocr.images(count)
        calls: Calls = {name: partial(module, pixels) for name, module in made.items()}
        found[ocr_label(count)] = _compare(calls, job)
    return found


def _load(job: Job) -> dict[str, Comparison]:
    """all-MiniLM-L6 from a file of Octavo's, and from the checkpoint; the files are in memory."""
    import torch

    with torch.inference_mode(False), tempfile.TemporaryDirectory(prefix="octavo-load-") as name:
        file = Path(name, "minilm")
        calls: Calls = {PRETRAINED: _pretrained, PRETRAINED_AO: _pretrained_ao}
        if OCTAVO in job.peers:
            module = torch_variants.quantized(OCTAVO, minilm.torch_model(minilm.SERVED))
            torch_variants.save(module, file)
            calls[OCTAVO] = partial(load, file)
        return {"load": interleave(calls, rounds=job.rounds)}


def load(file: Path) -> torch.nn.Module:
    """all-MiniLM-L6 as Octavo saved it."""
    made: torch.nn.Module = torch_variants.front_end().load(
        file, partial(minilm.untrained_model, minilm.SERVED)
    )
    return made


def _pretrained() -> torch.nn.Module:
    from transformers import BertModel
    from transformers.utils import logging

    logging.set_verbosity_error()  # not the report on the pooler that is left out
    logging.disable_progress_bar()
    options: dict[str, Any] = {"local_files_only": True, "attn_implementation": minilm.SERVED}
    return BertModel.from_pretrained(str(minilm.model_dir()), add_pooling_layer=False, **options)


def _pretrained_ao() -> torch.nn.Module:
    return torch_variants.quantized(AO, _pretrained())


PARTS: dict[str, Callable[[Job], dict[str, Comparison]]] = {
    "all-MiniLM-L6": _minilm,
    "g2p-en": _g2p,
    "nano-ocr": _ocr,
    "load": _load,
}
