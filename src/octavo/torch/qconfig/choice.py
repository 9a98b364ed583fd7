"""A choice as a user's qconfig says it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np
import torch

from octavo.core.kernels import WeightFormat, pack
from octavo.errors import OptionError
from octavo.torch.qconfig import QConfig
from octavo.torch.qconfig.observed import (
    ActivationKind,
    ObservedWeight,
    activation_of,
    describe_weight,
    dtype_of,
    is_affine,
    observe_weight,
)
from octavo.torch.weight_choice import Float32, Integers, WeightChoice


@dataclass(frozen=True)
class QConfigChoice:
    """As a qconfig's weight observer says; activations are quantized per row, or not at all."""

    qconfig: QConfig
    weights_only: bool = False

    @property
    def storage(self) -> str:
        return dtype_of(self.qconfig)

    @property
    def format(self) -> WeightFormat:
        return WeightFormat.INT8

    @property
    def search(self) -> bool:
        return False

    @property
    def held(self) -> Hashable:
        return self.qconfig

    @property
    def group(self) -> int:
        return 0

    @property
    def affine(self) -> bool:
        return is_affine(self.qconfig)

    @property
    def description(self) -> str:
        quantized = self.storage in ("int8", "uint8") and not self.weights_only
        return describe_weight(self.qconfig) + (
            ", activations per row" if quantized else ", weights only"
        )

    def integers(
        self, weight: Float32, name: str, *, symmetric: bool = False, packed: bool = False
    ) -> Integers:
        found = self._observed(weight, name, "output channels")
        n = weight.shape[0]
        if found.zero_point.dtype.kind == "f":
            raise OptionError(
                f"{name}: the qconfig's weight observer has qscheme "
                "per_channel_affine_float_qparams, which only embeddings take; use "
                "per_channel_symmetric or per_channel_affine"
            )
        shift = _shift(found)
        zero = np.array(np.broadcast_to(found.zero_point, n), np.int32) - shift
        if symmetric and zero.any():
            raise OptionError(
                f"{name}: the qconfig asks for affine weights; this layer holds symmetric "
                "ones: use dtype int8 with qscheme per_tensor_symmetric or per_channel_symmetric"
            )
        q = (found.q.astype(np.int16) - shift).astype(np.int8) if shift else found.q
        return Integers(
            pack(q) if packed else q,
            np.array(np.broadcast_to(found.scale, n), np.float32),
            zero if zero.any() else None,
            found.signal,
            found.noise,
        )

    def rows(self, table: Float32, name: str) -> Integers:
        found = self._observed(table, name, "rows")
        n = table.shape[0]
        zero = np.array(np.broadcast_to(found.zero_point, n))
        return Integers(
            found.q,
            np.array(np.broadcast_to(found.scale, n), np.float32),
            zero if zero.any() else None,
            found.signal,
            found.noise,
        )

    def _observed(self, weight: Float32, name: str, what: str) -> ObservedWeight:
        found = observe_weight(self.qconfig, torch.from_numpy(weight), name)
        if found.axis not in (None, 0):
            raise OptionError(
                f"{name}: the qconfig's weight observer has ch_axis={found.axis}; this layer's "
                f"{what} are axis 0: use PerChannelMinMaxObserver.with_args(ch_axis=0)"
            )
        return found

    def adapted(self, *, symmetric: bool, grouped: bool = False) -> tuple[WeightChoice, str]:
        activation = activation_of(self.qconfig)
        if activation.kind is ActivationKind.WEIGHTS_ONLY:
            return self, "activations per row, not in float"
        return self, activation.note

    def for_tables(self, *, grouped: bool = False) -> tuple[WeightChoice, str]:
        return replace(self, weights_only=True), ""


def _shift(found: ObservedWeight) -> int:
    """Return what to take from uint8 for int8: the zero point, where all is symmetric around one.

    Symmetric uint8 with a range of its own has the middle of that range, not 128.
    """
    if found.q.dtype != np.uint8:
        return 0
    zero = found.zero_point.astype(np.int32)
    middle = int(zero[0]) if zero.size else 128
    fits = found.qmin - middle >= -128 and found.qmax - middle <= 127
    return middle if fits and (zero == middle).all() else 128
