"""Checkpoints of Hugging Face: loading, quantizing one of 4 GB, and encoding sentences.

`python -m benchmarks.hub [--quick]`; with `--quick` the large checkpoint has 1 GB. Peak memory is
VmHWM, pages of mapped files included.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import large, runner
from benchmarks.results import Row
from benchmarks.runner import Job
from benchmarks.zoo.minilm_text import lee_documents, model_dir

SENTENCES = 1000
LAYERS, QUICK_LAYERS = 18, 3  # of 0.2 GB each, and 0.5 GB of embeddings


def quantized(job: Job) -> dict[str, Any]:
    """Bytes at the most and seconds of quantizing the folder SOURCE to the folder OUT."""
    from transformers import AutoModel

    import octavo.torch.hub.streaming  # noqa: F401  # what a first import takes is no part of it
    from octavo.torch.hub import OctavoConfig

    source, out = job.options["folders"]
    before, start = large.high_water(), time.perf_counter()
    model = AutoModel.from_pretrained(source, quantization_config=OctavoConfig())
    model.save_pretrained(out, max_shard_size="500MB")
    return {"seconds": time.perf_counter() - start, "bytes": large.high_water() - before}


def loaded(job: Job) -> dict[str, Any]:
    """Seconds until every weight of a folder is in memory, not in the system's cache before, and
    the memory that this takes."""
    import torch
    from transformers import AutoModel, BertModel  # noqa: F401

    import octavo.torch.hub.quantizer  # noqa: F401

    folder = Path(job.options["folder"])
    for file in folder.glob("*.safetensors"):
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    before, start = _resident(), time.perf_counter()
    model = AutoModel.from_pretrained(folder)
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.flatten().view(torch.uint8)[::4096].sum()
    return {"seconds": time.perf_counter() - start, "bytes": _resident() - before}


def encoded(job: Job) -> dict[str, Any]:
    """Seconds of encoding sentences in turns, float and int8, and the mean of their cosines."""
    import torch
    from sentence_transformers import SentenceTransformer

    from octavo.torch.hub import OctavoConfig

    words = " ".join(lee_documents()).split()
    texts = [" ".join(words[i : i + 8 + i % 17]) for i in range(job.options["sentences"])]
    given = {"quantization_config": OctavoConfig()}
    models = [
        SentenceTransformer(str(model_dir()), device="cpu", model_kwargs=kwargs)
        for kwargs in ({}, given)
    ]
    seconds: list[list[float]] = [[], []]
    found: list[Any] = [None, None]
    for _ in range(3):
        for i, model in enumerate(models):
            start = time.perf_counter()
            found[i] = model.encode(texts, convert_to_tensor=True)
            seconds[i].append(time.perf_counter() - start)
    cosine = torch.nn.functional.cosine_similarity(*found).mean()
    return {"seconds": [min(some) for some in seconds], "cosine": float(cosine)}


def _resident() -> int:
    text = Path("/proc/self/smaps_rollup").read_text()
    return int(text.split("Rss:")[1].split()[0]) * 1024


def write_checkpoint(folder: Path, layers: int) -> int:
    """A Llama with random weights in shards of 500 MB, never whole in memory; its bytes."""
    import torch
    from safetensors.torch import save_file
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=8,
        vocab_size=64000,
        architectures=["LlamaModel"],
    )
    config.save_pretrained(folder)
    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in LlamaModel(config).state_dict().items()}
    shards: list[dict[str, Any]] = [{}]
    size = 0
    for name, shape in shapes.items():
        if size and size + shape.numel() * 4 > 500e6:
            shards.append({})
            size = 0
        shards[-1][name] = shape
        size += shape.numel() * 4
    where: dict[str, str] = {}
    for i, shard in enumerate(shards, 1):
        file = f"model-{i:05d}-of-{len(shards):05d}.safetensors"
        tensors = {name: torch.randn(shape) * 0.02 for name, shape in shard.items()}
        save_file(tensors, folder / file, {"format": "pt"})
        where |= dict.fromkeys(shard, file)
    total: int = sum(shape.numel() * 4 for shape in shapes.values())
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return total


def load_rows(folder: Path, times: int) -> Iterator[Row]:
    """all-MiniLM-L6: its int8 folder beside the float one, by turns."""
    runner.value(Job("hub:quantized", options={"folders": [str(model_dir()), str(folder)]}))
    jobs = [Job("hub:loaded", options={"folder": str(f)}) for f in (folder, model_dir())]
    turns = [[runner.value(job) for job in jobs] for _ in range(times)]
    for what, key, unit, scale, most in (
        ("time", "seconds", "ms", 1e-3, 0.5),
        ("memory", "bytes", "MB", 1e6, 0.4),
    ):
        ours, theirs = (statistics.median(turn[i][key] for turn in turns) for i in (0, 1))
        note = f"{ours / scale:.3g} {unit} to {theirs / scale:.3g} {unit}"
        yield Row(
            f"{what} as a share of the float folder's", ours / theirs, at_most=most, note=note
        )


def large_rows(folder: Path, layers: int) -> Iterator[Row]:
    """A checkpoint in shards, quantized to a folder."""
    source = folder / "float"
    source.mkdir()
    size = write_checkpoint(source, layers)
    found = runner.value(
        Job("hub:quantized", threads=0, options={"folders": [str(source), str(folder / "int8")]})
    )
    note = f"a checkpoint of {size / 1e9:.2f} GB in {found['seconds']:.0f} s"
    yield Row("peak memory above torch and transformers", found["bytes"] / 1e9, "GB", at_most=1.5,
              note=note)  # fmt: skip


def sentence_rows(sentences: int) -> Iterator[Row]:
    """sentence-transformers on all-MiniLM-L6, one thread."""
    found = runner.value(Job("hub:encoded", options={"sentences": sentences}))
    theirs, ours = found["seconds"]
    note = f"{sentences} sentences in {ours:.2f} s to {theirs:.2f} s"
    yield Row("speed of encode, of the float model's", theirs / ours, "x", at_least=2.5, note=note)
    yield Row("mean cosine of both models' embeddings", found["cosine"], at_least=0.998)


def main(argv: Sequence[str] | None = None) -> int:
    """Measures, prints and keeps the rows."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = runner.parser("hub", __doc__).parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="octavo-hub-") as name:
        folder = Path(name)
        sections = {
            "Loading": partial(load_rows, folder / "minilm", 1 if options.quick else 5),
            "Quantizing a large checkpoint": partial(
                large_rows, folder, QUICK_LAYERS if options.quick else LAYERS
            ),
            "Encoding": partial(sentence_rows, 100 if options.quick else SENTENCES),
        }
        runner.publish("hub", "Checkpoints of the hub", sections, options, arguments)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
