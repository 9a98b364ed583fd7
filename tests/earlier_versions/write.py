"""Writes a file of every kind that Octavo writes, and what each gives, for later versions to read.

    python -m tests.earlier_versions.write

Into the folder of the version that runs. A release commits it; it is never written again.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import torch
import transformers

import octavo
import octavo.onnx
import octavo.torch
from octavo.recipe import dump_recipe, preset
from octavo.torch.hub import OctavoConfig
from octavo.torch.layers.base import QuantizedModule
from tests.earlier_versions import models

HERE = Path(__file__).parent
TARGETS = {
    "native.int8": {"target": "native"},
    "native.int4": {"target": "native", "recipe": "int4"},
    "portable.int8": {},
    "portable.int4": {"recipe": "int4"},
}
RECIPES = ("int8", "int4")
BITS = "bits.json"


def hidden(module: torch.nn.Module) -> np.ndarray:
    """What a model gives for the same ids: of transformers the hidden states."""
    with torch.inference_mode():
        said = module(torch.from_numpy(models.ids()))
    return (said if isinstance(said, torch.Tensor) else said.last_hidden_state).numpy()


def layer_bits(module: torch.nn.Module) -> str:
    """A digest of what each quantized linear layer gives for made-up rows: ours on any machine."""
    told = hashlib.sha256()
    for name, layer in module.named_modules():
        if isinstance(layer, QuantizedModule) and hasattr(layer, "in_features"):
            rows = torch.linspace(-1, 1, 4 * layer.in_features).reshape(4, -1)
            with torch.inference_mode():
                told.update(name.encode() + layer(rows).numpy().tobytes())
    return told.hexdigest()


def write_graphs(folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary, "model.onnx")
        onnx.save(models.graph(), source)
        for name, options in TARGETS.items():
            path = folder / f"{name}.onnx"
            octavo.onnx.quantize_dynamic(source, path, **options)
            (y,) = octavo.onnx.session(path).run(None, {"ids": models.ids()})
            yield path.name, y


def write_modules(folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    for recipe in RECIPES:
        path = folder / f"{recipe}.safetensors"
        module = octavo.torch.quantize_dynamic(models.module(), recipe=recipe)
        octavo.torch.save(module, path)
        yield path.name, hidden(module)


def write_checkpoints(folder: Path) -> Iterator[tuple[str, np.ndarray]]:
    with tempfile.TemporaryDirectory() as source:
        models.write_checkpoint(Path(source))
        for recipe in RECIPES:
            path = folder / f"checkpoint.{recipe}"
            config = OctavoConfig(recipe=recipe)
            module = transformers.AutoModel.from_pretrained(source, quantization_config=config)
            module.save_pretrained(path)
            yield path.name, hidden(module)


def write_bits(folder: Path) -> None:
    """Of checkpoints, whose other operators are PyTorch's."""
    loaded = {
        path.name: layer_bits(transformers.AutoModel.from_pretrained(path))
        for path in sorted(folder.glob("checkpoint.*"))
    }
    (folder / BITS).write_text(json.dumps(loaded, indent=2) + "\n")


def write(folder: Path) -> None:
    folder.mkdir()
    given = dict([*write_graphs(folder), *write_modules(folder), *write_checkpoints(folder)])
    (folder / "recipe.yaml").write_text(dump_recipe(preset("int4")))
    np.savez_compressed(folder / "given.npz", **given)
    write_bits(folder)


if __name__ == "__main__":
    write(HERE / octavo.__version__)
