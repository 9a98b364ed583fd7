"""One model while its layers are read, rewritten, and lowered or packed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core import versions
from octavo.core.attention_type import AttentionType
from octavo.core.form import Cpu
from octavo.core.stored_integers import stored
from octavo.errors import listed
from octavo.graph.analysis.constants import ConstantLookup
from octavo.graph.analysis.walk import opset_of
from octavo.graph.emit.emitter import Emitter, Names
from octavo.graph.emit.quantized_inputs import Activations
from octavo.graph.emit.sweeper import Sweeper
from octavo.ir import DOMAIN, MS
from octavo.ir.operator import KEY, LAYER, Operator
from octavo.ir.weight import QuantizedWeightValues, Weight, WeightIntegers

_T = TypeVar("_T")

Store = Callable[[Any, str], ir.TensorProtocol]
"""Keeps an array under a name: in memory, or in the data file that is being written."""


def in_memory(array: Any, name: str) -> ir.TensorProtocol:
    """Store an array in memory, for files without a data file."""
    return ir.Tensor(np.asarray(array, order="C"), name=name)


class Context:
    """What reading, rewriting, lowering and packing work with.

    `cpu` is what files of stock operators are made for. Weights are held once, whoever shares them.
    """

    def __init__(
        self,
        model: ir.Model,
        constants: ConstantLookup,
        *,
        cpu: Cpu = Cpu.VNNI,
        opset: int | None = None,
        store: Store = in_memory,
    ) -> None:
        self.model, self.constants, self.cpu = model, constants, cpu
        self.attention = AttentionType.FLOAT32
        """What the recipe lets attention multiply in."""
        self.opset = opset_of(model) if opset is None else opset
        self.names = Names(model)
        self.emitter = Emitter(model, self.names, self.opset)
        self.prelude = Emitter(model, self.names, self.opset)
        """Of what stands before all layers: it depends on nothing but constants."""
        self.activations = Activations(model, self.emitter, constants)
        self.uniform = self.activations.uniform
        self.sweeper = Sweeper(model)
        self.layers: Counter[str] = Counter()
        """How many nodes of each operator were put in place of others."""
        self.tables: set[Hashable] = set()
        """Keys of the weights that lookups and linear layers share."""
        self._store = store
        self._notes: dict[str, list[str]] = {}
        self._made: dict[Hashable, Any] = {}
        self._wishes: list[tuple[ir.Value, str]] = []

    def note(self, layer: str | None, text: str) -> None:
        """Note of `layer` what was changed, or why nothing was."""
        said = self._notes.setdefault(text, [])
        if layer and layer not in said:
            said.append(layer)

    def notes(self) -> tuple[str, ...]:
        """Return all notes, each with the layers that it speaks of."""
        found = [f"{text}: {listed(names)}" for text, names in self._notes.items()]
        return (*found, *self.sweeper.notes())

    def once(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return what `make` returned for `key`; `make` is called once for each key."""
        if key not in self._made:
            self._made[key] = make()
        found: _T = self._made[key]
        return found

    def put(
        self, operator: Operator, *, name: str, outs: list[str], layer: str | None = None
    ) -> list[ir.Value]:
        """Add a node for `operator`, to be lowered or packed; the name "" leaves an output out.

        Notes call the node `layer`, by default `name`.
        """
        values = list(
            self.emitter.op_n(operator.op, operator.inputs(), outs=outs, name=name, domain=DOMAIN)
        )
        node = values[0].producer()
        assert node is not None
        node.meta[KEY], node.meta[LAYER] = operator, layer or name
        return values

    def hold(self, array: Any, wish: str, graph: ir.Graph | None = None) -> ir.Value:
        """Add an initializer to `graph` (by default the main one), in the end called `wish`.

        That name may still be that of the value that the initializer replaces.
        """
        name = self.names.values.new(wish)
        of = None if graph is self.model.graph else graph
        value = self.prelude.initializer(self._store(array, name), name, of)
        if name != wish:
            self._wishes.append((value, wish))
        return value

    def hold_integers(
        self, weight: Weight, found: WeightIntegers, *, unsigned: bool | None = None
    ) -> QuantizedWeightValues:
        """Store a weight's parts for stock operators, `unsigned` integers moved up by 128.

        By default those for any CPU are unsigned.
        """
        unsigned = self.cpu is Cpu.ANY if unsigned is None else unsigned
        q, zero = stored(found.q, found.zeros, unsigned=unsigned)
        parts = zip((q, found.scale, zero), ("quantized", "scale", "zero_point"), strict=True)
        return QuantizedWeightValues(*(self.hold(a, weight.part_name(what)) for a, what in parts))

    def array(self, value: ir.Value | None) -> npt.NDArray[Any] | None:
        """Return the numbers of a stored constant, None where there is none."""
        tensor = self.constants.tensor(value)
        return None if tensor is None else np.asarray(tensor.numpy())

    def as_float32(self, x: ir.Value, node: ir.Node, dtype: ir.DataType | None) -> ir.Value:
        """Return `x` in float32: itself, or a Cast that all its readers in the graph share."""
        return self.activations.as_float32(x, node, dtype or ir.DataType.FLOAT)

    def from_float32(self, y: ir.Value, dtype: ir.DataType | None, out: str) -> ir.Value:
        """Return `y` in `dtype`: itself, or a Cast called `out`."""
        if dtype in (None, ir.DataType.FLOAT):
            return y
        assert dtype is not None
        return self.emitter.cast(y, dtype, out)

    def replace(self, last: ir.Node, outputs: Any, kind: str | None = None) -> None:
        """Insert the nodes built so far before `last` and put `outputs` in the place of `last`."""
        self.emitter.flush_before(last)
        self.sweeper.replace(last, outputs)
        if kind is not None:
            self.layers[kind] += 1

    def absorb(self, old: ir.Node, last: ir.Node, operator: Operator) -> ir.Node:
        """Put `operator` where `last` stands, named as `old`; drop `old` and all up to `last`."""
        out = last.outputs[0].name or "y"
        self.names.nodes.free(old.name)
        values = self.put(operator, name=old.name or out, outs=[out])
        self.replace(last, values)
        node = values[0].producer()
        assert node is not None
        return node

    def finish(self) -> None:
        """Names that are free by now go to those that wished for them; domains are stated."""
        taken = set(Names(self.model).values.taken())
        for value, wish in self._wishes:
            if wish not in taken and value.is_initializer():
                taken.discard(value.name or "")
                taken.add(wish)
                value.name = wish
        for value in (v for node in self.model.graph.all_nodes() for v in node.outputs):
            if value.type is None:  # a file holds no shape without one
                value.shape = None
        used = self.emitter.domains | self.prelude.domains
        for domain, version in ((MS, 1), (DOMAIN, versions.OPERATORS)):
            if domain in used and (domain != DOMAIN or self.has_operators()):
                self.model.opset_imports.setdefault(domain, version)

    def has_operators(self) -> bool:
        """Tell whether a node of the model is one of Octavo's."""
        return any(node.domain == DOMAIN for node in self.model.graph.all_nodes())
