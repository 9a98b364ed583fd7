"""The quantized layers that there are. Each declares itself; every table of layers is read here.

@quantized(replaces=nn.Linear, kind=Kind.LINEAR, onnx=("linear",))
class QuantizedLinear(QuantizedModule): ...
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from torch import nn

from octavo.recipe import Kind
from octavo.torch.dynamic_type import own_type
from octavo.torch.layers.base import QuantizedModule

Shapes = list[tuple[int, ...]]
_T = TypeVar("_T", bound=type[QuantizedModule])


@dataclass(frozen=True)
class Declaration:
    """A quantized layer and what is known of it, as `quantized` takes it."""

    layer: type[QuantizedModule]
    kind: Kind
    replaces: tuple[type | str, ...]
    dtypes: Collection[str]
    chosen_with: type | None
    recognizes: Callable[[nn.Module], bool] | None
    macs_axes: int
    inputs: Callable[[Any, bool], Shapes]
    onnx: tuple[str, ...]
    plural: str

    def types(self) -> list[type]:
        """Return the types of the float layers that are loaded.

        A type whose library is not loaded is in no model.
        """
        return [found for found in map(_loaded, self.replaces) if found is not None]

    def covers(self, module: nn.Module) -> bool:
        """Tell whether `module` is such a float layer, or one derived from it."""
        if self.recognizes is not None:
            return self.recognizes(module)
        own = own_type(module)
        return any(
            isinstance(module, known)
            if isinstance(known, type)
            else known == f"{own.__module__}.{own.__name__}"
            for known in self.replaces
        )


_declared: dict[str, Declaration] = {}


def quantized(
    *,
    kind: Kind,
    replaces: type | str | tuple[type | str, ...] = (),
    dtypes: Collection[str] = (),
    chosen_with: type | None = None,
    recognizes: Callable[[nn.Module], bool] | None = None,
    macs_axes: int = 2,
    inputs: Callable[[Any, bool], Shapes] = lambda module, is_deep: [],
    onnx: tuple[str, ...] = (),
    plural: str = "layers",
) -> Callable[[_T], _T]:
    """Declare the decorated class, a QuantizedModule, as a quantized layer.

    Args:
        kind: what the layer does, in the words of recipes.
        replaces: the float layer that it stands for, or several; the dotted name of one whose
            library is optional. None where another layer makes it.
        dtypes: of `quantize_dynamic`, those with which the layer is quantized though nothing is
            said of it: "int8", "float16", "uint8".
        chosen_with: the float type with which the layer is chosen by default, where it has no name
            of its own for users.
        recognizes: tells a float layer where no type does; `replaces` then stands for all of those.
        macs_axes: how many of a weight's last axes one row is multiplied with.
        inputs: shapes that the float layer takes, the likeliest first, to make up inputs of a model
            that begins with it; the second argument tells that the model shrinks its input much.
        onnx: names of the operators of `torch.ops.octavo` that forward calls; none: no ONNX form.
        plural: what messages call several of them.
    """
    many = replaces if isinstance(replaces, tuple) else (replaces,)

    def declare(layer: _T) -> _T:
        known = _declared.get(layer.__name__)
        if known is not None and known.layer.__module__ != layer.__module__:
            raise TypeError(
                f"{layer.__module__}.{layer.__name__}: a quantized layer of that name is declared "
                f"in {known.layer.__module__}; files name layers, so that each needs its own"
            )
        _declared[layer.__name__] = Declaration(
            layer, kind, many, dtypes, chosen_with, recognizes, macs_axes, inputs, onnx, plural
        )
        return layer

    return declare


def declarations() -> list[Declaration]:
    """Return the declarations of all layers: those in the files beside this one."""
    _load()
    return list(_declared.values())


def layer_classes() -> dict[str, type[QuantizedModule]]:
    """Return the quantized layers by name: those that a saved file may name."""
    return {declared.layer.__name__: declared.layer for declared in declarations()}


def covering(module: nn.Module) -> Declaration | None:
    """Return the declaration of the layer that stands for the float `module`; None for others.

    The layer stands for what `module` is or derives from.
    """
    return next((d for d in declarations() if d.replaces and d.covers(module)), None)


def recognized() -> Iterator[tuple[type, Callable[[nn.Module], bool]]]:
    """Types that stand for modules without a common type, and what tells these."""
    for declared in declarations():
        if declared.recognizes is not None:
            yield declared.types()[0], declared.recognizes


def _loaded(known: type | str) -> type | None:
    if isinstance(known, type):
        return known
    home, _, name = known.rpartition(".")
    found: type | None = getattr(sys.modules.get(home), name, None)
    return found


@cache
def _load() -> None:
    package = sys.modules[__package__ or ""]
    for found in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{found.name}")
