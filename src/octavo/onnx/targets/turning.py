"""What the files beside this one draw with: one model on its way from one target to the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.errors import ModelError, listed
from octavo.graph.activations import Activations
from octavo.graph.constants import Fixed
from octavo.graph.dims import Dims
from octavo.graph.emitter import MS, Emitter, Names
from octavo.graph.integers import stored
from octavo.graph.linear import QuantizedWeightValues
from octavo.graph.native import DOMAIN, VERSION
from octavo.graph.native.linear import PackedValues
from octavo.graph.sweeper import Sweeper
from octavo.graph.walk import opset_of
from octavo.onnx.constants import Constants
from octavo.onnx.write.store import TensorStore

_T = TypeVar("_T")

Outputs = Sequence["ir.Value | None"]
"""What takes the places of a node's outputs; None for one that nothing reads."""


class Turning:
    """Weights are held once, whoever shares them; `cpu` is "vnni" or "any", for portable ones."""

    def __init__(self, model: ir.Model, tensors: TensorStore, *, cpu: str) -> None:
        self.model, self.cpu = model, cpu
        self.opset = opset_of(model)
        self.names = Names(model)
        self.emitter = Emitter(model, self.names, self.opset)
        self.prelude = Emitter(model, self.names, self.opset)
        self.constants = Constants(self.opset)
        self.activations = Activations(model, self.emitter, self.constants)
        self.dims = Dims(model, Fixed(self.constants))
        self.sweeper = Sweeper(model)
        self.layers: Counter[str] = Counter()
        self.tables: set[ir.Value] = set()
        """Weights that lookups and linear layers share."""
        self.packed: dict[tuple[ir.Value, bool, ir.Graph | None], PackedValues] = {}
        """Packed weights by where they are stored, whether as [K, N], and their graph."""
        self._tensors = tensors
        self._notes: dict[str, list[str]] = {}
        self._held: dict[Hashable, Any] = {}
        self._wishes: list[tuple[ir.Value, str]] = []

    def note(self, layer: str | None, text: str) -> None:
        """Says of `layer` what is otherwise than it was, or why it is as it was."""
        said = self._notes.setdefault(text, [])
        if layer and layer not in said:
            said.append(layer)

    def notes(self) -> tuple[str, ...]:
        """Each with the layers that it speaks of."""
        found = [f"{text}: {listed(names)}" for text, names in self._notes.items()]
        return (*found, *self.sweeper.notes())

    def array(self, value: ir.Value) -> npt.NDArray[Any]:
        """The numbers of a constant. Raises ModelError where it is computed."""
        if not self.constants.is_constant(value):
            raise ModelError(
                f"{value.name!r}, a part of a quantized layer, is computed while the model runs; "
                "Octavo writes it as a constant: convert the float model again"
            )
        return self.constants.array(value)

    def once(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """What `make` returned for `key`."""
        if key not in self._held:
            self._held[key] = make()
        found: _T = self._held[key]
        return found

    def hold(
        self, array: npt.NDArray[Any], wish: str | None, graph: ir.Graph | None = None
    ) -> ir.Value:
        """A new initializer of `graph` (by default the main one), in the end called `wish`.

        That name may still be that of what it replaces.
        """
        wish = wish or "weight"
        name = self.names.values.new(wish)
        of = None if graph is self.model.graph else graph
        value = self.prelude.initializer(self._tensors.put(array, name), name, of)
        if name != wish:
            self._wishes.append((value, wish))
        return value

    def integers(
        self,
        q: npt.NDArray[np.int8],
        scale: npt.NDArray[np.float32],
        zero_point: npt.NDArray[Any],
        like: Sequence[ir.Value],
        *,
        unsigned: bool | None = None,
    ) -> QuantizedWeightValues:
        """A weight of target portable, named as its three parts in `like` are.

        `unsigned` ones are moved up by 128: by default those for any CPU.
        """
        unsigned = self.cpu == "any" if unsigned is None else unsigned
        arrays = stored(q, zero_point, unsigned=unsigned)
        values = (arrays[0], scale, arrays[1])
        parts = [self.hold(a, v.name) for a, v in zip(values, like, strict=True)]
        return QuantizedWeightValues(*parts)

    def replace(self, last: ir.Node, outputs: Outputs, kind: str) -> None:
        """Puts what was drawn before `last` and takes `last` out; a layer of `kind` is done."""
        self.emitter.flush_before(last)
        self.sweeper.replace(last, outputs)
        self.layers[kind] += 1

    def finish(self) -> None:
        """Names that are free by now go to those that wished for them; domains are stated."""
        taken = set(Names(self.model).values.taken())
        for value, wish in self._wishes:
            if wish not in taken and value.is_initializer():
                taken.discard(value.name or "")
                taken.add(wish)
                value.name = wish
        used = self.emitter.domains | self.prelude.domains
        for domain, version in ((MS, 1), (DOMAIN, VERSION)):
            if domain in used:
                self.model.opset_imports.setdefault(domain, version)
