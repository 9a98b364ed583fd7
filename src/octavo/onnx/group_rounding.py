"""Weights in groups and blocks: rounded by themselves, or by what samples tell of their inputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from octavo.core.error_feedback import round_with_feedback
from octavo.core.group_rounding import RoundedGroups, round_groups
from octavo.core.kernels import QuantizedWeight
from octavo.core.qparams import QType
from octavo.errors import ModelError
from octavo.graph.lower.blocks import BlockIntegers
from octavo.ir.weight import Account
from octavo.onnx.blocks import format_of, is_plain
from octavo.recipe import WeightScheme

Quantize = Callable[[npt.NDArray[np.float32], "int | None", WeightScheme, str], QuantizedWeight]


def _no_statistics(name: str) -> None:
    """Without samples nothing is known of inputs."""


class GroupRounding:
    """Rounds the weights of one conversion; `quantize` does so for one scale a channel."""

    def __init__(self, quantize: Quantize) -> None:
        self._quantize = quantize
        self.statistics: Callable[[str], npt.NDArray[np.float32] | None] = _no_statistics
        """By a weight's name: what samples tell of the inputs that multiply it."""
        self.by_statistics: set[str] = set()
        """The weights that were rounded by them."""

    def grouped(
        self, matrix: npt.NDArray[np.float32], scheme: WeightScheme, name: str
    ) -> RoundedGroups:
        """Round a matrix [N, K] under a scheme that is a kernels' format; `name` is for errors."""
        weight_format = format_of(scheme)
        assert weight_format is not None
        search = scheme.observer == "search"
        told = self.statistics(name) if search else None
        if told is not None and told.shape[-1] != matrix.shape[1]:
            told = None  # a table that is a linear layer's weight the other way round
        try:
            wide = np.ascontiguousarray(matrix)
            if told is None:
                return round_groups(wide, weight_format, search=search)
            self.by_statistics.add(name)
            if told.ndim == 1:
                return round_groups(wide, weight_format, told)
            return round_with_feedback(wide, weight_format, told)
        except ValueError as error:
            raise unfit(name, matrix.shape, error) from error

    def in_blocks(
        self,
        matrix: npt.NDArray[np.float32],
        scheme: WeightScheme,
        name: str,
        shape: tuple[int, ...],
    ) -> tuple[BlockIntegers, Account]:
        """Round a matrix [N, K] of a weight of `shape` in blocks; return its SQNR's sums too."""
        outputs, inputs = matrix.shape
        odd = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
        if odd.size:  # said of the weight as it is, not of its blocks
            raise unfit(name, shape, f"output {odd[0]} of its {outputs} holds NaN or infinity")
        if not is_plain(scheme):
            found = self.grouped(matrix, scheme, name)
            return BlockIntegers.of(found.weight), Account(0, found.signal, found.noise)
        block = scheme.block
        assert block is not None
        count = -(-inputs // block)
        padded = np.zeros((outputs, count * block), np.float32)
        padded[:, :inputs] = matrix
        eight = WeightScheme(qtype=QType.UINT8, symmetric=scheme.symmetric)
        quantized = self._quantize(padded.reshape(outputs * count, block), 0, eight, name)
        q = quantized.q.reshape(outputs, count * block)[:, :inputs]
        scale = quantized.qparams.scale.reshape(outputs, count)
        zero = quantized.qparams.zero_point.astype(np.uint8).reshape(outputs, count)
        account = Account(0, quantized.signal, quantized.noise)
        return BlockIntegers(q, scale, None if scheme.symmetric else zero, 8, block), account


def unfit(name: str, shape: tuple[int, ...], why: object) -> ModelError:
    """Return the error about a weight that holds what nothing can round."""
    return ModelError(
        f"weight {name!r} {shape} cannot be quantized: {why}; "
        "exclude the layers that use it, or mend the model"
    )
