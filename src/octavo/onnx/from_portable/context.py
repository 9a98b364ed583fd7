"""What the recognizers beside this file work with."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.form import Cpu
from octavo.errors import ModelError
from octavo.graph.analysis.constants import Fixed
from octavo.graph.analysis.dims import Dims
from octavo.graph.context import Context, Store
from octavo.ir.weight import Weight
from octavo.onnx.constants import Constants


@dataclass(frozen=True)
class Shared:
    """A matrix of a linear layer that lookups may share; zero points are those of int8."""

    weight: Weight
    scale: npt.NDArray[np.float32]
    zero_point: npt.NDArray[np.int32]

    def holds(self, scales: npt.NDArray[Any], zeros: npt.NDArray[Any]) -> bool:
        """Whether it has these scales and zero points."""
        return bool((self.zero_point == zeros).all()) and np.array_equal(self.scale, scales)


class RecognitionContext(Context):
    """A model on its way from stock operators to Octavo's."""

    constants: Constants

    def __init__(self, model: ir.Model, constants: Constants, *, cpu: Cpu, store: Store) -> None:
        super().__init__(model, constants, cpu=cpu, store=store)
        self.dims = Dims(model, Fixed(constants))
        self.matrices: dict[Hashable, Shared] = {}
        """By where they are stored, whether as [N, K], and their graph."""

    def numbers(self, value: ir.Value) -> npt.NDArray[Any]:
        """Those of a constant. Raises ModelError where it is computed."""
        if not self.constants.is_constant(value):
            raise ModelError(
                f"{value.name!r}, a part of a quantized layer, is computed while the model runs; "
                "Octavo writes it as a constant: convert the float model again"
            )
        return self.constants.array(value)
