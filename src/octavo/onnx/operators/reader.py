"""What a reader of one ONNX operator is, and what it works with.

`match` says whether a node is a layer of its kind and which inputs are weights; `check` refuses
with a reason; `announce` tells the weight store what it will ask for; `read` puts operators of
ai.octavo in the node's place, which are rewritten, and lowered or packed, afterwards. Schemes that
these operators do not know (one scale for a whole activation, QDQ, blocks) are drawn with stock
operators at once: ONNX Runtime's own forms, node for node.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import onnx_ir as ir

from octavo.core.form import Cpu, Form
from octavo.core.kernels.packing import GROUP
from octavo.core.qparams import QType
from octavo.errors import ModelError
from octavo.graph.context import Context, Store
from octavo.graph.emit.rows import QuantizedRows
from octavo.graph.lower.blocks import FIRST_WITH_BLOCKS
from octavo.ir.weight import Account
from octavo.onnx.blocks import is_in_blocks, without_blocks
from octavo.onnx.constants import FLOATS, Constants
from octavo.onnx.weights import WeightStore
from octavo.recipe import ActivationScheme, Granularity, Kind, Scheme

_T = TypeVar("_T")


@dataclass
class Drawn:
    """What `read` gives back: the values that take the outputs' places, and what to report."""

    outputs: Sequence[ir.Value | None]
    accounts: Sequence[Account | None]
    """Of the weights; filled in when they are lowered or packed."""
    notes: list[str] = field(default_factory=list)


class ReadContext(Context):
    """A model while its layers are read: the store of its float weights, and what is asked for."""

    constants: Constants

    def __init__(self, model: ir.Model, constants: Constants, form: Form, store: Store) -> None:
        super().__init__(model, constants, cpu=form.cpu, opset=form.opset, store=store)
        self.form = form
        self.native, self.qdq = form.native, form.qdq
        self.weights = WeightStore(constants, self.prelude, store)
        self.held_anyway: set[Any] = set()
        """Keys of weights that a layer which is no lookup holds in integers."""
        self.packed: set[Any] = set()
        """Keys of what linear layers of the native target will hold packed."""
        self.layer = ""
        """What errors call the layer that is being read."""

    def blaming(self, make: Callable[[], _T]) -> Callable[[], _T]:
        """Wrap `make` so that its errors name the layer that is being read now."""
        layer = self.layer

        def called() -> _T:
            try:
                return make()
            except ModelError as error:
                raise ModelError(f"layer {layer}: {error}") from error

        return called

    def weight_scheme_for_cpu(self, scheme: Scheme) -> Scheme:
        """int8 weights as uint8 around 128 where the file is for any CPU: exact everywhere."""
        w = scheme.weight
        if (
            self.cpu is Cpu.VNNI
            or w is None
            or w.qtype is not QType.INT8
            or scheme.activation is None
        ):
            return scheme
        return replace(scheme, weight=replace(w, qtype=QType.UINT8))

    @property
    def typed_blocks(self) -> bool:
        """Tell whether weights in blocks are DequantizeLinear's, which no lookup reads."""
        return self.qdq and self.opset >= FIRST_WITH_BLOCKS

    def per_tensor(self, x: ir.Value, node: ir.Node) -> QuantizedRows:
        """Float32 `x` with one scale for all of it, once for all layers that read it."""
        return self.activations.per_tensor(x, node)


class Reader(ABC):
    """One operator's. `op` is `Type` for a standard operator, `domain.Type` for another.

    Methods that are given `native` speak of layers held as Octavo's kernels hold them; whether one
    is so, `takes_native` says. All others are held as ONNX Runtime's operators hold them.
    """

    op: ClassVar[str]
    kind: ClassVar[Kind]
    declared: ClassVar[list[type[Reader]]] = []

    def __init_subclass__(cls) -> None:
        if "op" in cls.__dict__:
            Reader.declared.append(cls)

    @abstractmethod
    def match(self, node: ir.Node, constants: Constants) -> tuple[ir.Value, ...] | None:
        """Return the weights of `node` if it is a layer of this kind (perhaps none), else None."""

    # docs/notes/native_target.md: "Layers that kernels cannot hold have stock operators"
    def takes_native(self, node: ir.Node, scheme: Scheme, c: ReadContext) -> bool:
        """Tell whether target native holds the layer as `scheme` says in an operator of its own."""
        return False

    def held_native(self, scheme: Scheme) -> tuple[Scheme, list[str]]:
        """Return the scheme as the kernels hold it, and notes on what is different."""
        return by_rows(scheme)

    @abstractmethod
    def check(self, node: ir.Node, scheme: Scheme, c: ReadContext, *, native: bool) -> str | None:
        """Return why `node` cannot be held as `scheme` says, or None where it can."""

    def announce(self, node: ir.Node, scheme: Scheme, c: ReadContext, *, native: bool) -> None:  # noqa: B027
        """Tells `c` which stored weights the layer will ask for."""

    @abstractmethod
    def read(
        self, node: ir.Node, scheme: Scheme, c: ReadContext, name: str, *, native: bool
    ) -> Drawn:
        """Build the quantized layer of `node` in `c`."""

    def kind_of(self, node: ir.Node, weights: tuple[ir.Value, ...]) -> Kind:
        """Return the layer's kind; by default the reader's."""
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


def by_rows(scheme: Scheme) -> tuple[Scheme, list[str]]:
    """Activations per row, or by groups of 128: what the kernels have."""
    a, notes = scheme.activation, []
    assert a is not None
    if a.granularity is Granularity.TENSOR:
        notes.append("activations per row: target native has no scale for a whole tensor")
        a = replace(a, granularity=Granularity.ROW)
    if a.granularity is Granularity.GROUP and a.group != GROUP:
        notes.append(f"activations per group of {GROUP}: target native has no groups of {a.group}")
        a = replace(a, group=GROUP)
    return replace(scheme, activation=a), notes


def by_channels(scheme: Scheme, layers: str) -> tuple[Scheme, list[str]]:
    """Return the scheme per channel, with integer activations by rows, and notes on what changed.

    It is for `layers` whose kernels have no blocks.
    """
    w, a, notes = scheme.weight, scheme.activation, []
    assert w is not None
    if is_in_blocks(w):
        notes.append(f"int8 per channel and row: {layers} of target native have no blocks")
        a = None if a is None or a.granularity is Granularity.GROUP else a
    return Scheme(without_blocks(w), a or ActivationScheme()), notes


def by_groups(scheme: Scheme) -> tuple[Scheme, list[str]]:
    """Weights in blocks: activations per row, or by groups as long as the blocks."""
    w, a = scheme.weight, scheme.activation
    assert w is not None and a is not None
    if a.granularity is Granularity.TENSOR:
        return by_rows(scheme)
    if a.granularity is Granularity.ROW or a.group == w.block:
        return scheme, []
    note = f"activations per group of {w.block}, as the weight's, not of {a.group}"
    return replace(scheme, activation=replace(a, group=w.block)), [note]


def exact_inputs(scheme: Scheme) -> int:
    """Return how many products an int32 sum holds: 127 x 255 each, or 255 x 255 where affine."""
    return 65_536 if scheme.weight is None or scheme.weight.symmetric else 32_768


def op_name(node: ir.Node) -> str:
    """Return the operator's name: `MatMul`, or `com.microsoft.Attention` of another domain."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def is_float_type(dtype: ir.DataType | None) -> bool:
    """Tell whether layers of this element type can be quantized."""
    return dtype in FLOATS


def float_weight(node: ir.Node, constants: Constants) -> tuple[ir.Value] | None:
    """Return the second input of `node` if it is a constant of floats, else None."""
    w = input_at(node, 1)
    if w is None or not constants.is_constant(w) or not is_float_type(constants.dtype(w)):
        return None
    return (w,)


def attribute_int(node: ir.Node, name: str, default: int) -> int:
    """Return an integer attribute, or its default."""
    attribute = node.attributes.get(name)
    return default if attribute is None else int(attribute.as_int())


def attribute_ints(node: ir.Node, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    """Return an attribute of integers, or its default."""
    attribute = node.attributes.get(name)
    return default if attribute is None else tuple(int(v) for v in attribute.as_ints())


def attribute_float(node: ir.Node, name: str, default: float) -> float:
    """Return a float attribute, or its default."""
    attribute = node.attributes.get(name)
    return default if attribute is None else float(attribute.as_float())


def attributes_of(node: ir.Node, *, without: Sequence[str] = ()) -> dict[str, object]:
    """Return the attributes of a node except those in `without`, ready for a new node."""
    return {k: a for k, a in node.attributes.items() if k not in without}


def input_at(node: ir.Node, index: int) -> ir.Value | None:
    """Return the input at `index`, None where it is left out."""
    return node.inputs[index] if index < len(node.inputs) else None
