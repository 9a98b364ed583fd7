"""What the children of `benchmarks.torch_models` measure: modules of one model by turns.

A job's peers are the variants, in the order in which they are made; the modules are made as users
make them, outside inference mode.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks import torch_variants
from benchmarks.large import high_water
from benchmarks.runner import Job
from benchmarks.torch_variants import AO, OCTAVO
from benchmarks.zoo import g2p, nano_ocr
from benchmarks.zoo import minilm as zoo
from octavo.measure.timing import Comparison, idle, interleave

PRETRAINED, PRETRAINED_AO = "from_pretrained", "from_pretrained and torch.ao"
Calls = dict[str, Callable[[], object]]


def _compared(
    job: Job,
    model: Callable[[], torch.nn.Module],
    call: Callable[[torch.nn.Module, tuple[int, ...]], tuple[str, Callable[[], object]]],
) -> dict[str, Comparison]:
    """For each cell the label and the calls of all variants that `call` makes of it."""
    with torch.inference_mode(False):
        exact = model()
        made = {name: torch_variants.quantized(name, exact) for name in job.peers}
    # All modules use PyTorch's own pool, which spins on for a while after a call.
    settle = None if job.threads == 1 else lambda name: idle()
    found = {}
    for cell in job.cells:
        bound = {name: call(module, cell) for name, module in made.items()}
        label = next(label for label, _ in bound.values())
        calls = {name: run for name, (_, run) in bound.items()}
        found[label] = interleave(calls, rounds=job.rounds, settle=settle)
    return found


def minilm(job: Job) -> dict[str, Comparison]:
    """all-MiniLM-L6, eager; a cell is batch and length, all of it real tokens.

    With the option `untrained` it has random weights.
    """
    make = _untrained if job.options.get("untrained") else partial(zoo.torch_model, zoo.SERVED)

    def call(module: torch.nn.Module, cell: tuple[int, ...]) -> tuple[str, Callable[[], object]]:
        torch.manual_seed(0)
        tokens = torch.randint(1000, 30000, cell)
        feed = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        feed["token_type_ids"] = torch.zeros_like(tokens)
        return "x".join(map(str, cell)), partial(module, **feed)

    return _compared(job, make, call)


def _untrained() -> torch.nn.Module:
    return zoo.untrained_model(zoo.SERVED).eval()


def g2p_en(job: Job) -> dict[str, Comparison]:
    """A cell is how many words."""

    def call(module: torch.nn.Module, cell: tuple[int, ...]) -> tuple[str, Callable[[], object]]:
        return f"{cell[0]} words, one by one", partial(g2p.decode, module, g2p.words(cell[0]))

    return _compared(job, g2p.torch_model, call)


def ocr(job: Job) -> dict[str, Comparison]:
    """nano-ocr; a cell is how many images at once."""

    def call(module: torch.nn.Module, cell: tuple[int, ...]) -> tuple[str, Callable[[], object]]:
        label = f"{cell[0]} image{'s' * (cell[0] > 1)}"
        return label, partial(module, nano_ocr.images(cell[0]))

    return _compared(job, nano_ocr.torch_model, call)


def loading(job: Job) -> dict[str, Comparison]:
    """all-MiniLM-L6 from a file of Octavo's, and from the checkpoint; the files are in memory."""
    with torch.inference_mode(False), tempfile.TemporaryDirectory(prefix="octavo-load-") as name:
        file = Path(name, "minilm")
        calls: Calls = {PRETRAINED: _pretrained, PRETRAINED_AO: _pretrained_ao}
        if OCTAVO in job.peers:
            module = torch_variants.quantized(OCTAVO, zoo.torch_model(zoo.SERVED))
            torch_variants.front_end().save(module, file)
            calls[OCTAVO] = partial(load, file)
        return {"load": interleave(calls, rounds=job.rounds)}


def load(file: Path) -> torch.nn.Module:
    """all-MiniLM-L6 as Octavo saved it."""
    factory = partial(zoo.untrained_model, zoo.SERVED)
    made: torch.nn.Module = torch_variants.front_end().load(file, factory)
    return made


def _pretrained() -> torch.nn.Module:
    from transformers import BertModel
    from transformers.utils import logging

    logging.set_verbosity_error()  # not the report on the pooler that is left out
    logging.disable_progress_bar()
    options: dict[str, Any] = {"local_files_only": True, "attn_implementation": zoo.SERVED}
    return BertModel.from_pretrained(str(zoo.model_dir()), add_pooling_layer=False, **options)


def _pretrained_ao() -> torch.nn.Module:
    return torch_variants.quantized(AO, _pretrained())


def decoder(layers: int) -> torch.nn.Module:
    """TinyLlama-1.1B's shape has 22 layers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        dtype="float32",
    )
    return LlamaForCausalLM(config).eval()


def quantizing(job: Job) -> dict[str, float]:
    """What quantizing a decoder in place takes, by a process that does nothing else.

    Parameters, bytes of the largest layer, seconds, and bytes resident at most with the float model
    (`float_peak`) and after quantizing it (`peak`). The cell is how many layers.
    """
    with torch.inference_mode(False):
        # What a first call loads is no part of the cost.
        torch_variants.quantized(job.peers[0], torch.nn.Sequential(torch.nn.Linear(64, 64)))
        model = decoder(job.cells[0][0])
        largest = max(sum(p.nbytes for p in m.parameters(recurse=False)) for m in model.modules())
        parameters, before = sum(p.numel() for p in model.parameters()), high_water()
        start = time.perf_counter()
        torch_variants.quantized(job.peers[0], model, inplace=True)
        seconds = time.perf_counter() - start
    costs = {"parameters": parameters, "largest": largest, "seconds": seconds}
    return {**costs, "float_peak": before, "peak": high_water()}
