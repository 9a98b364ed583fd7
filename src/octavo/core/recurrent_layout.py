"""PyTorch's flat lists of recurrent weights, checked and packed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from octavo.core.kernels.buffers import array_of
from octavo.core.kernels.packing import Float32
from octavo.core.recurrent_weights import Direction, Matrix, packed_matrix

FloatLayers = Iterable[int | tuple[int, int]]


class Kind(IntEnum):
    """What a step does; the values are the C++ core's."""

    LSTM = 0
    GRU = 1
    GRU_RESET_FIRST = 2
    RNN_TANH = 3
    RNN_RELU = 4

    @property
    def gates(self) -> int:
        """Blocks of rows in a weight."""
        return (4, 3, 3, 1, 1)[self]


class Layout(NamedTuple):
    """What a flat list of weights means: PyTorch's `all_weights`, one list."""

    kind: Kind
    hidden: int
    layers: int
    bidirectional: bool
    proj: int
    bias: bool
    reverse: bool

    @property
    def directions(self) -> int:
        """Of each layer."""
        return 2 if self.bidirectional else 1

    def names(self) -> list[str]:
        """Of the weights of one direction, in PyTorch's order."""
        names = ["w_ih", "w_hh"] + (["b_ih", "b_hh"] if self.bias else [])
        return names + (["w_hr"] if self.proj else [])


def packed_layers(
    layout: Layout, weights: Sequence[Any], float_layers: FloatLayers
) -> list[list[Direction]]:
    """The directions of each layer. Raises TypeError or ValueError, which name the weight."""
    at_least("hidden_size", layout.hidden, 1)
    at_least("num_layers", layout.layers, 1)
    if layout.bidirectional and layout.reverse:
        raise ValueError("reverse: is for a single direction, and bidirectional is set")
    names, ways = layout.names(), layout.directions
    if len(weights) != layout.layers * ways * len(names):
        raise ValueError(
            f"weights: {len(weights)} arrays; {layout.layers} layers of {ways} directions need "
            f"{layout.layers * ways * len(names)}: {', '.join(names)} for each"
        )
    kept = _float_set(float_layers, layout.layers, ways)
    layers: list[list[Direction]] = []
    inputs: int | None = None
    for i in range(layout.layers):
        layers.append([])
        for way in range(ways):
            first = (i * ways + way) * len(names)
            found = {
                name: array_of(weights[first + at], f"weights[{first + at}] ({name})", np.float32)
                for at, name in enumerate(names)
            }
            if inputs is None and found["w_ih"].ndim == 2:
                inputs = found["w_ih"].shape[1]
            _check_shapes(layout, found, first, inputs)
            where = f"layer {i}, direction {way}"
            try:
                made = _direction(layout, found, layout.reverse or way == 1, (i, way) in kept)
            except ValueError as error:
                raise ValueError(f"weights: {where}: {error}") from None
            layers[-1].append(made)
        inputs = ways * (layout.proj or layout.hidden)
    return layers


def _direction(
    layout: Layout, found: dict[str, Float32], reverse: bool, keep_float: bool
) -> Direction:
    kind, gates, rz = layout.kind, layout.kind.gates, 2 * layout.hidden
    w_hh, second = found["w_hh"], None
    of_input = of_state = None
    if layout.bias:
        of_input, of_state = product_biases(kind, found["b_ih"], found["b_hh"])
    if layout.proj:
        second = packed_matrix(found["w_hr"], None, 0, keep_float)
    if kind is Kind.GRU_RESET_FIRST:
        second = packed_matrix(w_hh[rz:], None, 1, keep_float)
        state: Matrix = packed_matrix(w_hh[:rz], None, 2, keep_float)
    else:
        state = packed_matrix(w_hh, of_state, gates, keep_float)
    made = packed_matrix(found["w_ih"], of_input, gates, keep_float)
    return Direction(made, state, second, reverse)


def product_biases(kind: Kind, b_ih: Float32, b_hh: Float32) -> tuple[Float32, Float32 | None]:
    """The biases [gates * hidden] of x's product and of h's as the C++ core adds them."""
    both: Float32 = b_ih + b_hh
    if kind is not Kind.GRU:
        return both, None
    of_state: Float32 = b_hh.copy()  # n's bias of the state goes through the reset gate
    rz = len(b_hh) // 3 * 2
    both[rz:], of_state[:rz] = b_ih[rz:], 0
    return both, of_state


def _check_shapes(
    layout: Layout, found: dict[str, Float32], first: int, inputs: int | None
) -> None:
    rows = layout.kind.gates * layout.hidden
    wanted: dict[str, tuple[int | None, ...]] = {
        "w_ih": (rows, inputs),
        "w_hh": (rows, layout.proj or layout.hidden),
        "b_ih": (rows,),
        "b_hh": (rows,),
        "w_hr": (layout.proj, layout.hidden),
    }
    for at, (name, array) in enumerate(found.items()):
        if name == "w_ih" and array.shape == (rows, 0):
            raise ValueError(
                f"weights[{first}] (w_ih): shape {array.shape} has no inputs; needs 1 or more"
            )
        if array.shape != wanted[name]:
            needs = str(wanted[name]).replace("None", "inputs")
            raise ValueError(f"weights[{first + at}] ({name}): needs {needs}, not {array.shape}")


def _float_set(float_layers: FloatLayers, layers: int, ways: int) -> set[tuple[int, int]]:
    kept: set[tuple[int, int]] = set()
    for entry in float_layers:
        i, among = entry if isinstance(entry, tuple) else (entry, None)
        chosen = range(ways) if among is None else (among,)
        if not 0 <= i < layers or any(not 0 <= way < ways for way in chosen):
            raise ValueError(
                f"float_layers: {entry} is none of the layers 0..{layers - 1}"
                f" (and directions 0..{ways - 1})"
            )
        kept.update((i, way) for way in chosen)
    return kept


def checked_clip(clip: float) -> float:
    """`clip`, where it is 0 or positive."""
    if not isfinite(clip) or clip < 0:
        raise ValueError(f"clip: {clip} must be 0 (none) or a positive number")
    return float(clip)


def at_least(name: str, value: int, least: int) -> None:
    """Raises ValueError where `value` is less."""
    if value < least:
        raise ValueError(f"{name}: {value} must be {least} or more")
