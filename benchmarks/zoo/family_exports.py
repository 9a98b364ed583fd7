"""The families as ONNX files: by both of PyTorch's exporters, with each spelling of attention."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.zoo import family_models
from benchmarks.zoo.export import cached, quiet, versions
from benchmarks.zoo.family import Family, Inputs, Size
from benchmarks.zoo.sessions import Feed, open_session

Exporter = Literal["torchscript", "dynamo"]
OUTPUT = "found"
_RECIPE = 1  # raise when exports or models change, so that nobody reads an older file
_TOLERANCE = 2e-3  # outputs are of order 1; a wrong mask or position shows as 0.1 and more
_FLEXIBLE = {Inputs.IMAGE: {0: "batch"}, Inputs.MEL: {0: "batch"}}
_TEXT_AXES = {0: "batch", 1: "length"}
_ENCODED_AXES = {0: "batch", 1: "encoded"}


@dataclass(frozen=True)
class Export:
    """How a model was written."""

    exporter: Exporter
    attention: str

    def __str__(self) -> str:
        return f"{self.exporter} {self.attention}"


class ExportError(RuntimeError):
    """An exporter cannot write a model; the message says why."""


def exports(family: Family) -> Iterator[Export]:
    """By each exporter with each spelling."""
    for exporter in ("torchscript", "dynamo"):
        for attention in family.spellings:
            yield Export(exporter, attention)


def onnx_path(family: Family, size: Size, export: Export) -> Path:
    """The float32 file, exported now if the cache lacks it: its inputs by name, and `found`.

    Batch and length are open where the exporter can leave them so (`open_axes` tells); else they
    are those of `feed`. What it computes is compared with PyTorch before anybody sees it. Raises
    ExportError.
    """
    title = f"{family.name} {size.value} {export}".replace(" ", "-").replace(".", "")
    name = f"family-{title}-{versions('torch', 'transformers')}-r{_RECIPE}.onnx"
    return cached(name, partial(_write, family, size, export))


def numpy_feed(given: Mapping[str, Tensor]) -> Feed:
    """What ONNX Runtime is given."""
    return {name: tensor.numpy() for name, tensor in given.items()}


def open_axes(path: Path) -> bool:
    """Whether the file takes other batches than the one that it was exported with."""
    return not isinstance(open_session(path).get_inputs()[0].shape[0], int)


def _write(family: Family, size: Size, export: Export, path: Path) -> None:
    module = family_models.model(family, size, export.attention)
    measured = family_models.feed(family, size, 1, 128 if size is Size.PUBLISHED else 12)
    example = family_models.feed(family, size, 2, 9, seed=1)
    failed: list[str] = []
    for given, axes in ((example, _axes(family, example)), (measured, {})):
        try:
            _export(module, given, axes, export.exporter, path)
            _check(module, path, [given, measured])
            return
        except Exception as error:  # noqa: BLE001  # exporters raise whatever they like
            text = " ".join(str(error).split())
            failed.append(f"{type(error).__name__}: {text[:300]}")
    raise ExportError(f"{family.name}, {export}: {failed[-1]} (with open axes: {failed[0]})")


def _axes(family: Family, given: Mapping[str, Tensor]) -> dict[str, dict[int, str]]:
    found = dict.fromkeys(given, _FLEXIBLE.get(family.inputs, _TEXT_AXES))
    for name in ("encoder_hidden_states", "memory"):
        if name in found:
            found[name] = _ENCODED_AXES
    if "decoder_input_ids" in found:
        found["decoder_input_ids"] = {0: "batch", 1: "decoded"}
    return found


def _export(
    module: nn.Module,
    given: Mapping[str, Tensor],
    axes: Mapping[str, dict[int, str]],
    exporter: Exporter,
    path: Path,
) -> None:
    options: dict[str, Any] = {"dynamo": False, "opset_version": 17}
    if exporter == "dynamo":
        options = {"dynamo": True, "external_data": False, "verbose": False}
        if axes:
            dims = tuple(dict.fromkeys(axes[name], torch.export.Dim.AUTO) for name in given)
            options["dynamic_shapes"] = {"tensors": dims}
    elif axes:
        options["dynamic_axes"] = {**axes, OUTPUT: {0: "batch"}}
    with quiet(), torch.no_grad(), _without_fast_path():
        torch.onnx.export(
            _Positional(module, tuple(given)).eval(),  # else the exporter trains it again
            tuple(given.values()),
            str(path),
            input_names=list(given),
            output_names=[OUTPUT],
            **options,
        )


@contextlib.contextmanager
def _without_fast_path() -> Iterator[None]:
    """PyTorch's own layers have one operator for all of a layer, which is none of ONNX's."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


class _Positional(nn.Module):  # type: ignore[misc]  # PyTorch is Any here
    """Positional inputs in, one tensor out: both exporters name those reliably."""

    def __init__(self, module: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.module, self.names = module, names

    def forward(self, *tensors: Tensor) -> Tensor:
        given: dict[str, Any] = dict(zip(self.names, tensors, strict=True))
        if getattr(getattr(self.module, "config", None), "use_cache", False):
            given["use_cache"] = False
        return family_models.output(self.module(**given))


def _check(module: nn.Module, path: Path, feeds: list[dict[str, Tensor]]) -> None:
    session = open_session(path)
    for given in feeds:
        with torch.inference_mode():
            exact = family_models.output(module(**given)).numpy()
        found = session.run(None, numpy_feed(given))[0]
        if found.shape != exact.shape:
            raise RuntimeError(f"the file gives {found.shape}, PyTorch {exact.shape}")
        worst = float(np.abs(found - exact).max())
        if not worst < _TOLERANCE:
            raise RuntimeError(f"the file differs from PyTorch by {worst:.2g}")
