"""What exports of PyTorch models share: each is made once, checked, and kept in the cache."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.zoo.fetch import cache_dir, locked
from benchmarks.zoo.sessions import open_session

if TYPE_CHECKING:
    import torch


_TOLERANCE = 1e-4  # of logits of order 1 to 10; a wrong layer shows as 0.1 and more


def cached(name: str, make: Callable[[Path], None]) -> Path:
    """`models/NAME` in the cache, made now if it is not there: whole, or not at all.

    `make` writes to the path that it is given, and raises if that is not what it should be.
    """
    path = cache_dir() / "models" / name
    if not path.is_file():
        with locked(path.name):  # with its suffix: a file may be made of another of its stem
            if not path.is_file():
                path.parent.mkdir(parents=True, exist_ok=True)
                _make(path, make)
    return path


def _make(path: Path, make: Callable[[Path], None]) -> None:
    partial = path.with_name(f".{path.name}.partial")
    try:
        make(partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def export_images(
    model: torch.nn.Module, images: torch.Tensor, axes: Mapping[str, int], path: Path
) -> None:
    """`model` as opset 17 through torch.onnx's TorchScript exporter, compared on `images`.

    `axes` names the input and the output, in this order, and says which of their axes is the batch.
    Raises RuntimeError if ONNX Runtime's output, for one image or all, is further than 1e-4 from
    PyTorch's.
    """
    import torch

    names = list(axes)
    with quiet(), torch.no_grad():
        torch.onnx.export(
            model,
            (images[:2],),
            str(path),
            dynamo=False,
            opset_version=17,
            input_names=names[:1],
            output_names=names[1:],
            dynamic_axes={name: {axis: "batch"} for name, axis in axes.items()},
        )
        session = open_session(path)
        for part in (images[:1], images):
            got = session.run(None, {names[0]: part.numpy()})[0]
            worst = float(np.abs(got - model(part).numpy()).max())
            if not worst < _TOLERANCE:
                raise RuntimeError(
                    f"the export {path.name} differs from PyTorch by {worst:.2g} "
                    f"(limit {_TOLERANCE})"
                )


def versions(*packages: str) -> str:
    """`torch2.13.0-transformers5.0.0`: what an export depends on."""
    return "-".join(f"{name}{version(name).split('+')[0]}" for name in packages)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Exporters warn of deprecations and of branches that a comparison shows to be harmless."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
