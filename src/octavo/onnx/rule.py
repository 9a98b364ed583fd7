"""What a conversion rule is, and what it works with.

A rule speaks of one operator. `match` says whether a node is a layer of its kind and which inputs
are weights; `check` refuses with a reason; `announce` tells the weight store what it will ask for;
`rewrite` draws the quantized form; `reference` states in NumPy what the drawn nodes compute.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import onnx_ir as ir

from octavo.core.form import Cpu, Form
from octavo.core.qtype import QType
from octavo.graph.activations import Activations
from octavo.graph.emitter import Emitter, Names
from octavo.graph.rows import QuantizedRows
from octavo.onnx.constants import FLOATS, Constants
from octavo.onnx.weights import Stats, WeightStore
from octavo.recipe import Granularity, Kind, Scheme


@dataclass
class Drawn:
    """What `rewrite` gives back: the values that take the outputs' places, and what to report."""

    outputs: Sequence[ir.Value | None]
    stats: Sequence[Stats | None]
    notes: list[str] = field(default_factory=list)


class Context:
    """Everything a rule needs while a model is converted."""

    def __init__(
        self,
        model: ir.Model,
        names: Names,
        constants: Constants,
        weights: WeightStore,
        form: Form,
    ) -> None:
        self.model = model
        self.names = names
        self.form = form
        self.opset, self.native, self.qdq = form.opset, form.native, form.qdq
        self.emitter = Emitter(model, names, form.opset)
        self.constants = constants
        self.weights = weights
        self.activations = Activations(model, self.emitter, constants)
        self.uniform = self.activations.uniform
        self.held_anyway: set[Any] = set()
        """Keys of weights that a layer which is no lookup holds in integers."""
        self.checksums: dict[Any, int] = {}
        """Of packed weights, by what their forms call them."""
        self.packed: set[Any] = set()
        """What linear layers of the native target will hold packed, by the same names."""

    def weight_scheme_for_cpu(self, scheme: Scheme) -> Scheme:
        """int8 weights as uint8 around 128 where the file is for any CPU: exact everywhere."""
        from dataclasses import replace

        w = scheme.weight
        if (
            self.form.cpu is Cpu.VNNI
            or w is None
            or w.qtype is not QType.INT8
            or scheme.activation is None
        ):
            return scheme
        return replace(scheme, weight=replace(w, qtype=QType.UINT8))

    def as_float32(self, x: ir.Value, node: ir.Node, dtype: ir.DataType) -> ir.Value:
        """`x` in float32: itself, or a Cast shared by all layers of the graph that read it."""
        return self.activations.as_float32(x, node, dtype)

    def from_float32(self, y: ir.Value, dtype: ir.DataType, out: str) -> ir.Value:
        """`y` in the layer's own type, called `out`."""
        return self.emitter.cast(y, dtype, out)

    def activation(self, x: ir.Value, width: int, node: ir.Node, scheme: Scheme) -> QuantizedRows:
        """Float32 `x` quantized as `scheme` says, once for all layers of a graph that read it."""
        assert scheme.activation is not None
        if scheme.activation.granularity is Granularity.TENSOR:
            return self.activations.per_tensor(x, node)
        return self.activations.per_row(x, width, node)


class Rule(ABC):
    """One operator's rule. `op` is `Type` for a standard operator, `domain.Type` for another."""

    op: ClassVar[str]
    kind: ClassVar[Kind]

    @abstractmethod
    def match(self, node: ir.Node, constants: Constants) -> tuple[ir.Value, ...] | None:
        """The weights of `node` if it is a layer of this kind (perhaps none), else None."""

    @abstractmethod
    def check(self, node: ir.Node, scheme: Scheme, context: Context) -> str | None:
        """Why `node` cannot be held as `scheme` says, or None."""

    def announce(self, node: ir.Node, scheme: Scheme, context: Context) -> None:  # noqa: B027
        """Tells `context.weights` which stored matrices the layer will ask for."""

    @abstractmethod
    def rewrite(self, node: ir.Node, scheme: Scheme, context: Context, name: str) -> Drawn:
        """Draws the quantized form with `context.emitter`."""

    def kind_of(self, node: ir.Node, weights: tuple[ir.Value, ...]) -> Kind:
        """The layer's kind; by default the rule's."""
        return self.kind

    def macs_per_row(self, weights: Sequence[tuple[int, ...]]) -> int | None:
        """Multiply-accumulates for one row of input, from the weights' shapes."""
        total = 0
        for shape in weights:
            size = 1
            for d in shape:
                size *= d
            total += size
        return total or None


def exact_inputs(scheme: Scheme) -> int:
    """How many products an int32 sum holds exactly: 127 x 255 each, or 255 x 255 where affine."""
    return 65_536 if scheme.weight is None or scheme.weight.symmetric else 32_768


def op_name(node: ir.Node) -> str:
    """`MatMul`, or `com.microsoft.Attention` for an operator of another domain."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def is_float_type(dtype: ir.DataType | None) -> bool:
    """Whether layers of this element type can be quantized."""
    return dtype in FLOATS


def attribute_int(node: ir.Node, name: str, default: int) -> int:
    """An integer attribute, or its default."""
    attribute = node.attributes.get(name)
    return default if attribute is None else int(attribute.as_int())


def attribute_float(node: ir.Node, name: str, default: float) -> float:
    """A float attribute, or its default."""
    attribute = node.attributes.get(name)
    return default if attribute is None else float(attribute.as_float())


def attributes_of(node: ir.Node, *, without: Sequence[str] = ()) -> dict[str, object]:
    """All attributes of a node but some, ready for a new node."""
    return {k: a for k, a in node.attributes.items() if k not in without}


def input_at(node: ir.Node, index: int) -> ir.Value | None:
    """The input at `index`, None where it is left out."""
    return node.inputs[index] if index < len(node.inputs) else None
