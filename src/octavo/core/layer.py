"""One entry of a model's inventory."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from octavo.core.data import Data

SMALL_TABLE = 16 * 1024  # bytes


class Kind(Enum):
    """What a layer does, in words that PyTorch and ONNX share."""

    LINEAR = "linear"
    EMBEDDING = "embedding"
    ATTENTION = "attention"
    CONV = "conv"
    LSTM = "lstm"
    GRU = "gru"
    RNN = "rnn"
    ACTIVATION_MATMUL = "activation_matmul"  # a product of two activations: no weight
    OTHER = "other"  # holds weights, and Octavo has no rule for it


@dataclass(frozen=True)
class Layer(Data):
    """A part of a model that holds weights (or multiplies two activations).

    `op` is the framework's own name (`MatMul`, `com.microsoft.Attention`), `scope` the path of the
    subgraph that it lies in ("" for the main graph). `weights` are (name, shape) pairs, `bytes`
    their size in the float model, `macs_per_row` the multiply-accumulates for one row of input
    (None where it depends on the input's size), `shares_with` the names of layers that use one of
    the same weights.
    """

    name: str
    kind: Kind
    op: str
    weights: tuple[tuple[str, tuple[int, ...]], ...]
    bytes: int
    macs_per_row: int | None
    dtype: str = "float32"
    scope: str = ""
    shares_with: tuple[str, ...] = ()


def small_table(size: int) -> str:
    """Say why an embedding table of `size` bytes in float32 stays float; "" for one large enough.

    The error of a table of few rows is in every row of the input, and there is next to nothing
    to save.
    """
    if size >= SMALL_TABLE:
        return ""
    return f"its table has {size} bytes: below {SMALL_TABLE} there is nothing to win"
