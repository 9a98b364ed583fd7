"""A small CNN trained here on Fashion-MNIST: 60,000 grey pictures of clothes, ten classes.

model = torch_model()                      # trained on first use, which takes half a minute
accuracy(model)                            # 0.89, on the 10,000 pictures of the test set
accuracy(open_session(onnx_path()))        # the same
"""

from __future__ import annotations

import gzip
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from benchmarks.zoo.export import cached, export_images, versions
from benchmarks.zoo.fetch import fetch
from benchmarks.zoo.sessions import Array, Float32, Int64, Session

if TYPE_CHECKING:
    import torch


Part = Literal["train", "t10k"]
SIDE, CLASSES = 28, 10
_RECIPE = 1  # raise when module or training change, so that nobody reads an older file
_SEED, _EPOCHS, _BATCH, _RATE = 0, 1, 64, 3e-3
_IMAGES_HEADER, _LABELS_HEADER = 16, 8  # bytes: a magic number, and each dimension
_AT_ONCE = 250  # pictures of one call


def torch_model() -> torch.nn.Module:
    """Float32, in eval mode: pictures `[n, 1, 28, 28]` of 0..1 to logits `[n, 10]`."""
    import torch

    model = _module()
    path = cached(f"fashion-mnist-{versions('torch')}-r{_RECIPE}.pt", _write_weights)
    model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return model.eval()


def onnx_path() -> Path:
    """The float32 file, exported now if the cache lacks it; the batch is free.

    ``images`` float32 ``[n, 1, 28, 28]`` -> ``logits`` float32 ``[n, 10]``.
    """
    import torch

    def make(path: Path) -> None:
        pictures = torch.from_numpy(images()[:8])
        export_images(torch_model(), pictures, {"images": 0, "logits": 0}, path)

    return cached(f"fashion-mnist-{versions('torch')}-r{_RECIPE}.onnx", make)


@lru_cache
def images(part: Part = "t10k") -> Float32:
    """float32 `[n, 1, 28, 28]` of 0..1; the test set, or the training set's 60,000."""
    pixels = _read(f"{part}-images-idx3-ubyte.gz", _IMAGES_HEADER)
    scaled: Float32 = pixels.reshape(-1, 1, SIDE, SIDE).astype(np.float32) / np.float32(255)
    return scaled


@lru_cache
def labels(part: Part = "t10k") -> Int64:
    """The class of each of `images`, int64 `[n]`."""
    return _read(f"{part}-labels-idx1-ubyte.gz", _LABELS_HEADER).astype(np.int64)


def accuracy(model: torch.nn.Module | Session) -> float:
    """Share of the test set's 10,000 pictures whose largest logit is that of their class."""
    pictures = images()
    chunks = (pictures[i : i + _AT_ONCE] for i in range(0, len(pictures), _AT_ONCE))
    found = np.concatenate([_logits(model, chunk).argmax(axis=1) for chunk in chunks])
    return float((found == labels()).mean())


def _logits(model: torch.nn.Module | Session, pictures: Float32) -> Array:
    import torch

    if isinstance(model, Session):
        return model.run(None, {"images": pictures})[0]
    with torch.inference_mode():
        found: Array = model(torch.from_numpy(pictures)).numpy()
    return found


def _read(name: str, header: int) -> Array:
    folder = fetch("dataset-fashion-mnist") / "usr" / "share" / "datasets" / "fashion-mnist"
    return np.frombuffer(gzip.decompress((folder / name).read_bytes()), np.uint8, offset=header)


def _module() -> torch.nn.Module:
    from torch.nn import Conv2d, Flatten, Linear, MaxPool2d, ReLU, Sequential

    return Sequential(
        *(Conv2d(1, 32, 3, padding=1), ReLU(), MaxPool2d(2)),
        *(Conv2d(32, 64, 3, padding=1), ReLU(), MaxPool2d(2)),
        *(Conv2d(64, 128, 3, padding=1), ReLU(), MaxPool2d(2)),
        *(Flatten(), Linear(128 * 3 * 3, 128), ReLU(), Linear(128, CLASSES)),
    )


def _write_weights(path: Path) -> None:
    """Trains with a seed of its own, which is nobody else's afterwards."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        model = _module()
        _train(model)
    torch.save(model.state_dict(), path)


def _train(model: torch.nn.Module) -> None:
    import torch

    pictures, wanted = (torch.from_numpy(a) for a in (images("train"), labels("train")))
    steps = _EPOCHS * -(-len(pictures) // _BATCH)
    optimizer = torch.optim.Adam(model.parameters(), lr=_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _RATE, total_steps=steps)
    for _ in range(_EPOCHS):
        for chosen in torch.randperm(len(pictures)).split(_BATCH):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(pictures[chosen]), wanted[chosen])
            loss.backward()
            optimizer.step()
            schedule.step()
