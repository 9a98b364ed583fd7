"""What all operators have in common, and how a node of the graph stands for one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from reprlib import repr as short
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.kernels import WeightFormat
from octavo.core.kernels.activation import Activation
from octavo.errors import ModelError
from octavo.ir import DOMAIN
from octavo.ir.weight import PackedValues, Weight

KEY = "octavo.operator"
"""Of a node's metadata: the operator that it stands for, until it is lowered or packed."""

LAYER = "octavo.layer"
"""Of a node's metadata: what notes call it."""

_T = TypeVar("_T", bound="Operator")

PackedArrays = tuple[npt.NDArray[np.int8], npt.NDArray[np.float32], Any]
"""w, scale and zero point (or None) as kernels read them."""

Pack = Callable[[Any], PackedArrays]
"""From what `Weight.make` gives."""


class Packer(Protocol):
    """Puts the constants of a native node into its graph."""

    def packed(self, weight: Weight, pack: Pack, *, layout: str) -> PackedValues:
        """Return `weight`, packed once for all nodes that read it in this `layout`."""

    def bias(self, bias: ir.Value | None, count: int) -> ir.Value:
        """Return `bias`, or `count` zeros where there is none."""

    def constant(self, array: npt.NDArray[Any], what: str) -> ir.Value:
        """Put `array` into the graph, named after the node and `what` it is."""


@dataclass(frozen=True)
class Written:
    """Inputs and attributes of a native node."""

    inputs: Sequence[ir.Value | None]
    attributes: Mapping[str, Any]


class Operator(ABC):
    """A layer. Its fields that hold values of the graph are the inputs of its node, in order."""

    OPS: ClassVar[tuple[str, ...]]
    """The names of its nodes."""

    LEAST: ClassVar[int] = 1
    """Inputs that a node of a native file has at least."""

    IN_GROUPS: ClassVar[bool] = False
    """Whether it may hold weights in groups."""

    @classmethod
    def of(cls: type[_T], node: ir.Node) -> _T | None:
        """Return the operator that `node` stands for; None for another operator's node."""
        if node.domain != DOMAIN or node.op_type not in cls.OPS:
            return None
        held = node.meta.get(KEY)
        if held is None:
            found_format = format_of(node)
            if found_format.group and not cls.IN_GROUPS:
                raise ModelError(
                    f"{node.name!r} ({DOMAIN}.{node.op_type}): weights are in the format "
                    f"{found_format.value!r}, and this operator has int8 alone; get the file again"
                )
            inputs = [v for v in node.inputs if v is not None]
            if len(inputs) < cls.LEAST:
                raise damaged(node, f"has {len(inputs)} inputs; it needs {cls.LEAST}")
            return cls._read(node, inputs)
        found: _T = held.with_inputs(node.inputs)
        return found

    @classmethod
    @abstractmethod
    def _read(cls: type[_T], node: ir.Node, inputs: Sequence[ir.Value]) -> _T:
        """Read the operator that a node of a native file stands for: the inverse of `write`."""

    @abstractmethod
    def write(self, p: Packer) -> Written:
        """Return the node that a native file holds for this operator."""

    @property
    def op(self) -> str:
        """The name of its node."""
        return self.OPS[0]

    def inputs(self) -> list[ir.Value]:
        """Return the values that the operator reads, and the sources of its weights.

        As long as a node reads a source, nothing takes that out of the graph.
        """
        sources = [w.source for w in self.weights() if w.source is not None]
        return [*(value for _, value in self._values()), *sources]

    def weights(self) -> list[Weight]:
        """Return the weights that the layer has."""
        named = (getattr(self, f.name) for f in fields(self))  # type: ignore[arg-type]
        return [value for value in named if isinstance(value, Weight)]

    def with_inputs(self: _T, values: Sequence[ir.Value | None]) -> _T:
        """Return the operator with `values` in place of `inputs()`, but for weights' sources."""
        names = [name for name, _ in self._values()]
        return replace(self, **dict(zip(names, values, strict=False)))  # type: ignore[type-var]

    def _values(self) -> list[tuple[str, ir.Value]]:
        named = ((f.name, getattr(self, f.name)) for f in fields(self))  # type: ignore[arg-type]
        return [(name, value) for name, value in named if isinstance(value, ir.Value)]


def damaged(node: ir.Node, what: str) -> ModelError:
    """Make the error about a node of a native file that is otherwise than Octavo writes it."""
    return ModelError(f"{node.name!r} ({DOMAIN}.{node.op_type}) {what}; get the file again")


def format_of(node: ir.Node) -> WeightFormat:
    """Return how the node's weights are held. Raises ModelError for an unknown format."""
    given = node.attributes.get("weight_format")
    try:
        return WeightFormat.INT8 if given is None else WeightFormat.parse(given.as_string())
    except (ValueError, TypeError) as error:
        raise ModelError(f"{node.name!r} ({DOMAIN}.{node.op_type}): {error}") from error


_LISTS = ("kernel_shape", "pool", "shape", "layouts", "strides", "dilations", "pads")
_NUMBERS = ("clip", "epsilon", "fill", "scale", "softcap")
_WORDS = {
    "given": None,
    "activation": frozenset(activation.value for activation in Activation),
    "direction": frozenset(("forward", "reverse", "bidirectional")),
    "kind": frozenset(("layer", "rms")),
    "auto_pad": frozenset(("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")),
}
_RANGES = {  # of whole numbers; others are 0 or more
    **dict.fromkeys(("group", "groups"), (1, 1 << 31)),
    **dict.fromkeys(("kernel_shape", "pool", "strides", "dilations"), (1, 1 << 31)),
    **dict.fromkeys(("causal", "guard", "layouts"), (0, 2)),
    **dict.fromkeys(("hidden", "replaces"), (0, 1)),
    "shape": (-2, 1 << 31),  # octavo.ir.activation_products: WHOLE
    "window": (-1, 1 << 31),
}
_IN_PARTS = ("GroupedLinear", "GatedLinear")


def attribute(node: ir.Node, name: str) -> Any:
    """Return the value of an attribute that operators of ours always have.

    Raises ModelError where it is not there, or of another kind or range than Octavo writes.
    """
    found = node.attributes.get(name)
    if found is None:
        raise damaged(node, f"has no attribute {name!r}")
    in_parts = node.op_type in _IN_PARTS
    kind, value = found.type.name, found.value
    if name in _WORDS:
        known = _WORDS[name]
        is_text = kind == "STRING" and isinstance(value, str)
        words = value.split(" ") if is_text and in_parts else [value]
        fits = is_text and (known is None or known.issuperset(words))
    elif name in _NUMBERS:
        fits = kind in ("FLOAT", "INT")
    else:
        wanted = "INTS" if name in _LISTS or (name == "N" and in_parts) else "INT"
        least, most = _RANGES.get(name, (0, 1 << 31))
        numbers = value if wanted == "INTS" else (value,)
        fits = kind == wanted and all(least <= number <= most for number in numbers)
    if not fits:
        raise damaged(node, f"has {short(value)} as {name!r}")
    return value


def given_inputs(node: ir.Node, rest: Sequence[ir.Value], known: Sequence[str]) -> dict[str, Any]:
    """Return the inputs `rest` by the names in attribute `given`. Raises ModelError."""
    names = attribute(node, "given").split()
    if len(names) != len(rest) or not set(names) <= set(known):
        raise damaged(node, f"has {len(rest)} more inputs, and as 'given' {short(names)}")
    return dict(zip(names, rest, strict=True))


def stored_array(value: ir.Value, *shape: int) -> npt.NDArray[Any]:
    """Return the numbers of an initializer of a native file, of `shape` where one is given.

    Raises ModelError for a computed value, or one of another shape.
    """
    tensor = None if value.is_graph_input() else value.const_value
    if tensor is None:
        raise ModelError(
            f"{value.name!r}, a part of a quantized layer, is computed while the model runs; "
            "Octavo writes it as a constant: convert the float model again"
        )
    found = np.asarray(tensor.numpy())
    if shape and found.shape != shape:
        raise ModelError(
            f"{value.name!r}, a part of a quantized layer, is {list(found.shape)}, and by the "
            f"layer's sizes it is {list(shape)}; get the file again"
        )
    return found
