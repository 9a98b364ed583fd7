"""What the files beside this one draw with: one model's graph, and weights that are drawn once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import torch
from torch import Tensor

from octavo.errors import ModelError
from octavo.graph.activations import Activations
from octavo.graph.constants import Stored
from octavo.graph.emitter import Emitter, Names
from octavo.graph.integers import stored
from octavo.graph.linear import QuantizedWeightValues, dequantize
from octavo.graph.walk import opset_of

_T = TypeVar("_T")

Outputs = Sequence["ir.Value | None"]
"""What takes the places of a node's outputs; None for one that nothing reads."""


class Drawing:
    """One model while its layers are drawn for `cpu`, "vnni" or "any"."""

    def __init__(self, model: ir.Model, cpu: str) -> None:
        self.cpu = cpu
        self.names = Names(model)
        self.opset = opset_of(model)
        self.emitter = Emitter(model, self.names, self.opset)
        self.constants = Stored()
        self.activations = Activations(model, self.emitter, self.constants)
        self.notes: dict[str, list[str]] = {}
        self._held: dict[Any, tuple[Any, Any]] = {}

    def note(self, layer: str, text: str) -> None:
        """Says of `layer` what the file holds otherwise than the model."""
        said = self.notes.setdefault(text, [])
        if layer not in said:
            said.append(layer)

    def tensor(self, value: ir.Value) -> Tensor:
        """What is stored under `value`. Raises ModelError where it is computed."""
        found = self.constants.tensor(value)
        if found is None:
            raise ModelError(
                f"{value.name}: the weights of a quantized layer are computed while the model "
                "runs; ONNX needs them as constants"
            )
        raw = found.raw
        return raw if isinstance(raw, Tensor) else torch.from_numpy(np.array(found.numpy()))

    def once(self, form: Hashable, tensors: Sequence[Tensor], make: Callable[[], _T]) -> _T:
        """What `make` returned for these tensors; layers that share them share it."""
        key = (form, *(tensor.data_ptr() for tensor in tensors))
        if key not in self._held:
            self._held[key] = (tensors, make())  # their addresses are theirs while they are kept
        found: _T = self._held[key][1]
        return found

    def constant(
        self, values: npt.NDArray[Any] | Tensor, name: str, graph: ir.Graph | None = None
    ) -> ir.Value:
        """A new constant of `graph`, by default the main one, called `name` or the like."""
        name = self.names.values.new(name)
        if isinstance(values, Tensor):
            from onnx_ir.tensor_adapters import TorchTensor

            return self.emitter.initializer(TorchTensor(values.contiguous(), name), name, graph)
        array = np.asarray(values, order="C")
        return self.emitter.initializer(ir.Tensor(array, name=name), name, graph)

    def integers(
        self,
        q: npt.NDArray[np.int8],
        scale: npt.NDArray[np.float32],
        zero_point: npt.NDArray[np.int32] | None,
        name: str,
        *,
        unsigned: bool | None = None,
    ) -> QuantizedWeightValues:
        """A weight in the graph; `unsigned` ones are moved up by 128, by default for any CPU."""
        zero = np.zeros(scale.shape, np.int32) if zero_point is None else zero_point
        unsigned = self.cpu == "any" if unsigned is None else unsigned
        q_stored, zero_stored = stored(q, zero, unsigned=unsigned)
        return QuantizedWeightValues(
            self.constant(q_stored, f"{name}_quantized"),
            self.constant(scale, f"{name}_scale"),
            self.constant(zero_stored, f"{name}_zero_point"),
        )

    def dequantized(
        self, w: QuantizedWeightValues, shape: Sequence[int] | None, axis: int, name: str
    ) -> ir.Value:
        """The float32 matrix of `w`, with channels along `axis`, then reshaped to `shape`."""
        made = dequantize(self.emitter, w, out=name, axis=axis)
        if shape is None:
            return made
        return self.emitter.op("Reshape", [made, self.emitter.vector(shape)], out=f"{name}_shaped")

    def float32(self, x: ir.Value, node: ir.Node) -> ir.Value:
        """`x` in float32."""
        return self.activations.as_float32(x, node, x.dtype or ir.DataType.FLOAT)

    def in_kind(self, y: ir.Value, like: ir.Value, out: str) -> ir.Value:
        """`y`, which is float32, in the type of `like`."""
        dtype = like.dtype or ir.DataType.FLOAT
        return y if dtype is ir.DataType.FLOAT else self.emitter.cast(y, dtype, out)


def layer_of(value: ir.Value) -> str:
    """The name of the layer whose buffer `value` is."""
    return (value.name or "").rpartition(".")[0] or "model"
