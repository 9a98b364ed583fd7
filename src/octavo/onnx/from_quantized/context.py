"""What the recognizers beside this file work with."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.form import Cpu
from octavo.errors import ModelError
from octavo.graph.analysis.constants import Fixed
from octavo.graph.analysis.dims import Dims
from octavo.graph.context import Context
from octavo.onnx.constants import Constants
from octavo.onnx.stored_weight import StoredWeight

BYTES = (ir.DataType.INT8, ir.DataType.UINT8)


@dataclass(frozen=True)
class WasQuantized:
    """What stood where a float node stands now: the operator, and how it quantized activations."""

    op: str
    per_row: bool


class RestoringContext(Context):
    """A model on its way from integer operators to the float ones that they stand for."""

    constants: Constants

    def __init__(self, model: ir.Model, constants: Constants) -> None:
        super().__init__(model, constants, cpu=Cpu.VNNI)
        self.dims = Dims(model, Fixed(constants))
        self.restored: dict[ir.Value, WasQuantized] = {}
        """By the first output of the float node."""
        self._weights: dict[Hashable, ir.Value] = {}

    def numbers(self, value: ir.Value) -> npt.NDArray[Any]:
        """Return a constant's numbers. Raises ModelError where `value` is computed."""
        if not self.constants.is_constant(value):
            raise ModelError(
                f"{value.name!r}, a part of a quantized layer, is computed while the model runs; "
                "Octavo writes it as a constant: convert the float model again"
            )
        return self.constants.array(value)

    def are_constant(self, *values: ir.Value | None) -> bool:
        """Tell whether all that are given are constants."""
        return all(v is None or self.constants.is_constant(v) for v in values)

    def weight(
        self,
        q: ir.Value,
        scale: npt.NDArray[Any],
        zero_point: npt.NDArray[Any] | None,
        *,
        form: str | None = None,
    ) -> ir.Value | None:
        """Return the float weight `scale * (q - zero_point)`, the same one for the same numbers.

        `scale` and `zero_point` broadcast with `q`; None where they do not, or `q` are no bytes.
        Where `q` is a matrix that is stored the other way round, so is the weight.
        """
        root, c = self.constants.root(q), self.constants
        if c.dtype(root.leaf) not in BYTES:
            return None
        unsigned = c.dtype(root.leaf) is ir.DataType.UINT8
        zeros = np.zeros((), np.int8) if zero_point is None else np.asarray(zero_point)
        zeros = zeros.astype(np.uint8 if unsigned else np.int8)
        scales = np.asarray(scale, np.float32)
        shape = c.shape(root.leaf)
        if root.transposed:
            scales, zeros = (np.swapaxes(np.atleast_2d(a), 0, 1) for a in (scales, zeros))
        scales, zeros = _one_if_equal(scales), _one_if_equal(zeros)
        if not all(_fits(a, shape) for a in (scales, zeros)):
            return None
        key = (root.leaf, scales.shape, scales.tobytes(), zeros.shape, zeros.tobytes())
        if key not in self._weights:
            kind = "uint8" if unsigned else "int8"
            said = form or f"{kind} per {'tensor' if scales.size == 1 else 'channel'}"
            self._weights[key] = self._stored(root.leaf, scales, zeros, said)
        held = self._weights[key]
        if not root.transposed:
            return held
        return self.emitter.transpose(held, [1, 0], f"{held.name}_transposed")

    def _stored(
        self,
        leaf: ir.Value,
        scales: npt.NDArray[np.float32],
        zeros: npt.NDArray[Any],
        form: str,
    ) -> ir.Value:
        wish = (leaf.name or "weight").removesuffix("_quantized")
        name = self.names.values.new(wish)
        held = self.constants.tensor(leaf)
        if held is None:  # the nodes that it follows from go
            held = ir.Tensor(np.array(self.numbers(leaf)), name=leaf.name)
        tensor = StoredWeight(held, scales, zeros, form, name=name)
        return self.emitter.initializer(tensor, name)

    def restore(self, last: ir.Node, outputs: Sequence[ir.Value | None], was: WasQuantized) -> None:
        """Put the float node that was drawn, whose outputs are `outputs`, in place of `last`."""
        first = outputs[0]
        assert first is not None
        self.restored[first] = was
        self.replace(last, outputs)


def _one_if_equal(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return one number where all numbers of `array` are the same, else `array`."""
    if array.size and (array == array.flat[0]).all():
        return array.flat[0:1].reshape(())
    return array


def _fits(array: npt.NDArray[Any], shape: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(array.shape, shape) == shape
    except ValueError:
        return False
