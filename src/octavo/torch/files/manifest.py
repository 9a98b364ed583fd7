"""What a saved file says of its model beside the tensors: plain data, the metadata `octavo`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import torch
from torch import Tensor

import octavo
from octavo.core.data import fitted, from_plain
from octavo.errors import ModelError, did_you_mean, listed, typed
from octavo.results.report import Report
from octavo.torch.layers.base import QuantizedModule
from octavo.torch.model_tensors import is_dense

KEY = "octavo"
"""The metadata entry."""

FORMAT = 2
"""Raised where an older Octavo would misread the file."""
_INT8_ALONE = 1
"""What a file says whose layers are all int8: releases from before other formats read it."""
_FLOATS = {str(t).removeprefix("torch."): t for t in (torch.bfloat16, torch.float16, torch.float64)}
"""By name, the dtypes of layers that a file states; the others are float32."""


@dataclass(frozen=True)
class Manifest:
    """`layers`: name of each quantized layer to {"class", "config"}, parents first. `modules`:
    further names of modules that stand in several places, each to its first. `tensors`: the same
    for tensors. `attributes`: tensors that are plain attributes. `frozen`: parameters that require
    no gradient. `strides`: of tensors that are not row-major. `report` as `Report.to_dict`.
    """

    model: str
    layers: dict[str, dict[str, Any]]
    modules: dict[str, str] = field(default_factory=dict)
    tensors: dict[str, str] = field(default_factory=dict)
    attributes: list[str] = field(default_factory=list)
    frozen: list[str] = field(default_factory=list)
    strides: dict[str, list[int]] = field(default_factory=dict)
    recipe: dict[str, Any] | None = None
    report: dict[str, Any] | None = None
    version: str = octavo.__version__

    def to_json(self) -> str:
        """Return the manifest as JSON for the file's metadata."""
        known = version_of(self.layers.values(), _INT8_ALONE, FORMAT)
        data = {"format": known} | {f.name: getattr(self, f.name) for f in fields(self)}
        return json.dumps(data, separators=(",", ":"), allow_nan=False)


def version_of(layers: Iterable[Mapping[str, Any]], before: int, now: int) -> int:
    """Return a file's version: `now` if a weight format is later than int8, else `before`."""
    told = '"format":' in json.dumps([layer["config"] for layer in layers])  # of inner layers too
    return now if told else before


def parse(path: Path, metadata: Mapping[str, str]) -> Manifest:
    """Return the manifest in a file's metadata.

    Raises ModelError where there is none, for a newer format, and for damage.
    """
    if KEY not in metadata:
        raise ModelError(
            f"{path} is a safetensors file, but not one that octavo.torch.save wrote: its metadata "
            f"has no {KEY!r} (it has {listed(map(repr, sorted(metadata))) or 'none'}); "
            "write it with that"
        )
    try:
        data = json.loads(metadata[KEY])
        found = data.pop("format")
        newer = isinstance(found, int) and found > FORMAT
        if newer:
            raise ModelError(
                f"{path} has format {found}, written by Octavo {data.get('version', '?')}; this is "
                f"Octavo {octavo.__version__}, which reads up to {FORMAT}: "
                "install the one that wrote it"
            )
        return from_plain(Manifest, data)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _damaged(path, typed(error)) from None


def check_tensors(path: Path, manifest: Manifest, stored: Mapping[str, Tensor]) -> None:
    """Raise ModelError where the file lacks a tensor of the manifest, or its strides do not fit."""
    for name in (*manifest.tensors.values(), *manifest.strides):
        if name not in stored:
            raise _damaged(path, f"there is no tensor {name!r}")
    for name, strides in manifest.strides.items():
        try:
            made = torch.empty_strided(stored[name].shape, strides, device="meta")
        except (TypeError, RuntimeError):
            made = None
        if made is None or not is_dense(made):
            raise _damaged(path, f"{name!r} has strides {strides!r}")


def _damaged(path: Path, what: str) -> ModelError:
    return ModelError(
        f"{path} is damaged: the metadata {KEY!r} does not fit its format ({what}); "
        "copy it again, or save the model anew"
    )


def make_layer(
    path: Path, name: str, entry: Any, known: Mapping[str, type[QuantizedModule]]
) -> QuantizedModule:
    """Make the empty layer that an entry of `layers` describes; raise ModelError if it is none."""
    try:
        kind, config = fitted(str, entry["class"], "class"), dict(entry["config"])
    except (TypeError, KeyError, ValueError):
        raise _damaged(path, f"layers: {name!r} is {entry!r}") from None
    if kind not in known:
        raise ModelError(
            f"{path}: {name or 'the model'} is a {kind!r}, a layer that this Octavo "
            f"({octavo.__version__}) does not have.{did_you_mean(kind, known)}"
        )
    try:
        hints = _arguments(known[kind])  # type: ignore[arg-type]
        made = known[kind](**{key: fitted(hints.get(key), v, key) for key, v in config.items()})
        if "dtype" in entry:
            made.cast(_FLOATS[entry["dtype"]])
        return made
    except (*_REFUSALS, AttributeError, LookupError) as error:
        raise ModelError(
            f"{path} is damaged: {name or 'the model'} cannot be a {kind} of {config} ({error}); "
            "copy it again, or save the model anew"
        ) from None


_REFUSALS = (TypeError, ValueError, RuntimeError, ArithmeticError)  # of sizes that cannot be


@cache
def _arguments(kind: Any) -> dict[str, Any]:
    """Return the types of a layer's constructor arguments, those of its base classes too."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if issubclass(base, QuantizedModule) and "__init__" in vars(base):
            found |= get_type_hints(base.__init__)
    return found


def report_data(report: Report) -> dict[str, Any]:
    """Return the report's data for a manifest, without the recipe, which stands beside it."""
    data = report.to_dict() | {"layers": [o.to_dict(str) for o in report.layers]}
    del data["recipe"]
    return data


def report_of(path: Path, manifest: Manifest) -> Report | None:
    """Return the report that `report_data` made; None where there was none. Raises ModelError."""
    if manifest.report is None:
        return None
    try:
        return Report.from_dict({**manifest.report, "recipe": manifest.recipe or {}})
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise _damaged(path, f"report: {error!r}") from None
