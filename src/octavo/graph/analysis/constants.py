"""What the drawing of layers asks about constants; each front end answers in its own way."""

from __future__ import annotations

from typing import Protocol

import onnx_ir as ir


class ConstantLookup(Protocol):
    """Which values of a model are constant."""

    def tensor(self, value: ir.Value | None) -> ir.TensorProtocol | None:
        """Return the stored tensor behind an initializer or Constant node, else None."""

    def is_constant(self, value: ir.Value | None) -> bool:
        """Tell whether `value` is stored, or follows from stored values alone."""


class Stored:
    """Constants that are stored as they are: initializers and Constant nodes."""

    def tensor(self, value: ir.Value | None) -> ir.TensorProtocol | None:
        """Return the stored tensor behind an initializer or Constant node, else None."""
        if value is None:
            return None
        if value.is_initializer():
            return None if value.is_graph_input() else value.const_value
        return ir.convenience.get_const_tensor(value)

    def is_constant(self, value: ir.Value | None) -> bool:
        """Tell whether `value` is stored."""
        return self.tensor(value) is not None


class Fixed:
    """`constants` but for initializers that are inputs too: a run may give others.

    For what is proved of a model; weights are taken as they are, and their inputs go.
    """

    def __init__(self, constants: ConstantLookup) -> None:
        self._constants = constants

    def tensor(self, value: ir.Value | None) -> ir.TensorProtocol | None:
        """Return the stored tensor behind an initializer or Constant node, else None."""
        if value is None or value.is_graph_input():
            return None
        return self._constants.tensor(value)

    def is_constant(self, value: ir.Value | None) -> bool:
        """Tell whether `value` is stored, and no input."""
        return self.tensor(value) is not None
