"""Memory of decoders of few bits: while they run, and while they are quantized."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import runner
from benchmarks.decoders_speed import INT4, model
from benchmarks.families_aims import Aims
from benchmarks.results import Row, say
from benchmarks.runner import Job
from benchmarks.zoo import big_llama, smollm

MOST_RESIDENT = 1.3
MOST_SECONDS, MOST_BYTES = 60.0, 1e9
THREADS = 2


def resident_rows(section: str, aims: Aims) -> Iterator[Row]:
    """What SmolLM2-135M adds to a process that loads it and decodes."""
    say(section)
    found = runner.value(Job("decoders_memory:resident", threads=THREADS))
    yield Row("GGUF file", found["file"] / 1e6, "MB", section=section)
    for state in ("loaded", "decoding"):
        what = f"{INT4}: memory that it adds, {state}"
        yield Row(what, found[state] / 1e6, "MB", section=section)
    share = found["decoding"] / found["file"]
    what = "memory that it adds while it decodes, as a share of the file"
    yield Row(what, share, "x", at_most=MOST_RESIDENT, section=section)


def resident(job: Job) -> dict[str, float]:
    """Bytes; what a child finds. A first model has libraries loaded that are nobody's weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from octavo.torch import quantize_dynamic

    with torch.inference_mode(False), torch.no_grad():
        small = LlamaForCausalLM(LlamaConfig(**_SMALL)).eval()
        small = quantize_dynamic(small, recipe="int4", inplace=True)
    prompt = torch.arange(5, 13)[None]
    small.generate(prompt, max_new_tokens=4, do_sample=False)
    smollm.tokens(8)
    before = _resident_bytes()
    with torch.inference_mode(False), torch.no_grad():
        made = model(INT4, smollm.model_file())
    loaded = _resident_bytes() - before
    made.generate(prompt, max_new_tokens=64, do_sample=False)
    size = smollm.model_file().stat().st_size
    return {"file": size, "loaded": loaded, "decoding": _resident_bytes() - before}


_SMALL = {
    "vocab_size": 256,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
}


def quantizing_rows(section: str, aims: Aims) -> Iterator[Row]:
    """Time and memory of quantizing 1.1 billion float32 parameters to 4 bits."""
    say(section)
    found = runner.value(Job("decoders_memory:quantizing", threads=THREADS))
    yield Row("float model", found["model"] / 1e9, "GB", section=section)
    yield Row("time", found["seconds"], "s", at_most=MOST_SECONDS, section=section)
    above = found["peak"] / 1e9
    what = "memory above the float model's"
    yield Row(what, above, "GB", at_most=MOST_BYTES / 1e9, section=section)


def quantizing(job: Job) -> dict[str, float]:
    """What a child finds."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from octavo.torch import quantize_dynamic

    with torch.inference_mode(False), torch.no_grad():
        torch.manual_seed(0)
        made = LlamaForCausalLM(LlamaConfig(**big_llama.config())).eval()
        size = sum(p.nbytes for p in made.parameters())
        before = _forget_peak()
        start = time.perf_counter()
        made = quantize_dynamic(made, recipe="int4", inplace=True)
        seconds = time.perf_counter() - start
    return {"model": size, "seconds": seconds, "peak": _status("VmHWM") - before}


def _forget_peak() -> int:
    """Has the system measure the peak anew; the bytes that are resident now."""
    Path("/proc/self/clear_refs").write_text("5", "ascii")
    return _resident_bytes()


def _resident_bytes() -> int:
    return _status("VmRSS")


def _status(name: str) -> int:
    """Bytes of one line of the process's status."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    (found,) = (line for line in lines if line.startswith(f"{name}:"))
    return int(found.split()[1]) * 1024
