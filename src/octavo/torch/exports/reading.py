"""What reading a traced model works with: its graph, and the buffers of its layers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import torch
from torch import Tensor

from octavo.core.form import Cpu
from octavo.core.kernels import GroupedWeight, WeightFormat
from octavo.errors import ModelError
from octavo.graph.analysis.constants import Stored
from octavo.graph.context import Context, in_memory
from octavo.ir.weight import Weight, WeightIntegers

_T = TypeVar("_T")

Outputs = Sequence["ir.Value | None"]
"""What takes the places of a node's outputs; None for one that nothing reads."""


class ExportContext(Context):
    """One model while its layers are read; `native` says for which target."""

    def __init__(self, model: ir.Model, *, native: bool, cpu: Cpu) -> None:
        super().__init__(model, Stored(), cpu=cpu, store=_store)
        self.native = native
        self._kept: list[Sequence[Tensor]] = []

    def tensor(self, value: ir.Value) -> Tensor:
        """Return the tensor stored under `value`. Raises ModelError where it is computed."""
        found = self.constants.tensor(value)
        if found is None:
            raise ModelError(
                f"{value.name}: the weights of a quantized layer are computed while the model "
                "runs; ONNX needs them as constants"
            )
        raw = found.raw
        return raw if isinstance(raw, Tensor) else torch.from_numpy(np.array(found.numpy()))

    def of_tensors(self, form: Hashable, tensors: Sequence[Tensor], make: Callable[[], _T]) -> _T:
        """Return `make()`, computed once for all layers that share these tensors and the form."""
        self._kept.append(tensors)  # their addresses are theirs while they are kept
        return self.once((form, *(tensor.data_ptr() for tensor in tensors)), make)

    def weight(
        self,
        name: str,
        shape: Sequence[int],
        tensors: Sequence[Tensor],
        make: Callable[[], WeightIntegers | GroupedWeight],
        packed: Callable[[], tuple[Any, Any, Any]],
        *,
        part_names: Mapping[str, str] | None = None,
        weight_format: WeightFormat = WeightFormat.INT8,
    ) -> Weight:
        """Return the weight held in `tensors`, one object for all layers that share them."""
        key = (tuple(shape), *(tensor.data_ptr() for tensor in tensors))

        def found() -> Weight:
            return Weight(
                key,
                name,
                tuple(shape),
                make,
                packed=packed,
                part_names=part_names or {},
                format=weight_format,
            )

        return self.of_tensors(("weight", *shape), tensors, found)

    def float32(self, x: ir.Value, node: ir.Node) -> ir.Value:
        """Return `x` in float32."""
        return self.as_float32(x, node, x.dtype)

    def in_kind(self, y: ir.Value, like: ir.Value, out: str) -> ir.Value:
        """Return `y`, which is float32, in the type of `like`."""
        return self.from_float32(y, like.dtype, out)


def _store(values: npt.NDArray[Any] | Tensor, name: str) -> ir.TensorProtocol:
    if isinstance(values, Tensor):
        from onnx_ir.tensor_adapters import TorchTensor

        return TorchTensor(values.contiguous(), name)
    return in_memory(values, name)


def layer_of(value: ir.Value) -> str:
    """Return the name of the layer that has the buffer `value`."""
    return (value.name or "").rpartition(".")[0] or "model"
