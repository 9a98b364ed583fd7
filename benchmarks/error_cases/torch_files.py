"""What `octavo.torch.load` says of files that are not whole and models that do not fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.error_cases.case import Case

TITLE = "Loading PyTorch files"


@cache
def _saved() -> bytes:
    """What `octavo.torch.save` writes of the model of the folder's models.py."""
    import tempfile

    import torch
    from torch import nn

    import octavo.torch

    class Net(nn.Module):  # type: ignore[misc]  # torch's types are not read
        def __init__(self) -> None:
            super().__init__()
            self.query, self.value = nn.Linear(8, 16), nn.Linear(16, 4)

    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "q.safetensors")
        octavo.torch.save(octavo.torch.quantize_dynamic(Net()), path)
        return path.read_bytes()


def save(path: Path) -> None:
    """Writes the whole file."""
    path.write_bytes(_saved())


def _cut(path: Path) -> None:
    path.write_bytes(_saved()[:-100])


def _trailing(path: Path) -> None:
    path.write_bytes(_saved() + b"abc")


def _rewritten(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """A file whose metadata say something else of the model."""

    def write(path: Path) -> None:
        raw = _saved()
        length = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8 : 8 + length])
        said = json.loads(header["__metadata__"]["octavo"])
        change(said)
        header["__metadata__"]["octavo"] = json.dumps(said)
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])

    return write


def _plain(path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    save_file({"a": torch.ones(3)}, path, {"format": "pt"})


_LOAD = 'octavo.torch.load("b.safetensors", models.make)'
_ONLY = "octavo.torch.save"
_AGAIN = "copy it again"
CASES = (
    Case(
        *('octavo.torch.load("gone.safetensors", models.make)', "ModelError"),
        *("gone.safetensors", "no such file", "octavo.torch.save (octavo quantize) wrote", "give"),
    ),
    Case(
        _LOAD,
        "ModelError",
        "b.safetensors",
        "is cut short",
        "bytes",
        _AGAIN,
        files={"b.safetensors": _cut},
    ),
    Case(
        *(_LOAD, "ModelError", "b.safetensors", "3 bytes follow", "its last tensor", _AGAIN),
        files={"b.safetensors": _trailing},
    ),
    Case(
        *(_LOAD, "ModelError"),
        *("b.safetensors", "is no safetensors file", _ONLY, "reads what"),
        files={"b.safetensors": "PK a zip file, as torch.save writes"},
    ),
    Case(
        *(_LOAD, "ModelError"),
        *("b.safetensors", "(it has 'format')", _ONLY, "write it with that"),
        files={"b.safetensors": _plain},
    ),
    Case(
        *(_LOAD, "ModelError"),
        *("b.safetensors", "format 2", "reads up to 1", "install the one that wrote it"),
        files={"b.safetensors": _rewritten(lambda said: said.update(format=2, version="9.1"))},
    ),
    Case(
        *(_LOAD, "ModelError"),
        *("b.safetensors: query", "'QuantizedLinaer'", "Known: Quantized", "'QuantizedLinear'"),
        files={
            "b.safetensors": _rewritten(
                lambda said: said["layers"]["query"].update({"class": "QuantizedLinaer"})
            )
        },
    ),
    Case(
        *(_LOAD, "ModelError"),
        *("b.safetensors is damaged", "layers is list", "its format", _AGAIN),
        files={"b.safetensors": _rewritten(lambda said: said.update(layers=[]))},
    ),
    Case(
        *('octavo.torch.load("q.safetensors", models.wide)', "ModelError"),
        *("query", "out_features 32", "16 in the file", "Give the factory"),
    ),
    Case(
        *('octavo.torch.load("q.safetensors", models.bare)', "ModelError"),
        *("lacks modules", "query, value", "the model that was saved", "Give the factory"),
    ),
    Case(
        *('octavo.torch.load("q.safetensors", models.three)', "ModelError"),
        *("model_factory", "returned int", "an nn.Module", "needs the float model"),
    ),
    Case(
        *('octavo.torch.load("q.safetensors", lambda: models.ready)', "ModelError"),
        *("model_factory", "Net whose weights have values", "def build()", "skeleton='cpu'"),
    ),
    Case(
        *('octavo.torch.load("q.safetensors", models.make, skeleton="gpu")', "OptionError"),
        *("skeleton", "'gpu'", "'meta' or 'cpu'", "needs"),
    ),
    Case(
        *('octavo.torch.save(models.make(), "f.safetensors")', "ModelError"),
        *("Net", "no quantized layer", "octavo.torch.quantize_dynamic", "torch.save"),
    ),
)
