"""Typed entry points of the C++ core. Shapes, dtypes and errors are checked here.

| module | what |
|---|---|
| `weight` | float32 weights to integers |
| `packing` | the layouts that kernels read, in memory and on disk |
| `grouped` | weights of four and eight bits in groups |
| `rows` | rows of activations to integers |
| `buffers` | how arrays and tensors come in and go out |
| `machine` | instruction sets, threads, and what the silicon allows |

The layers themselves are in `octavo.core.linear` and its neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.core.kernels.activation import Activation
from octavo.core.kernels.grouped import GroupedWeight
from octavo.core.kernels.machine import (
    Part,
    cpu_features,
    has_bfloat16_products,
    isa,
    isas,
    num_threads,
    part_seconds,
    peak_gops,
    read_gbps,
    set_num_threads,
    thread_backend,
    use_isa,
)
from octavo.core.kernels.packing import (
    PackedWeight,
    WeightFormat,
    aligned,
    checksum,
    pack,
    packed_bytes,
    unpack,
)
from octavo.core.kernels.rows import quantize_rows
from octavo.core.kernels.weight import QuantizedWeight, quantize_packed, quantize_weight
from octavo.core.lazy import lazy as _lazy

if TYPE_CHECKING:
    from octavo.core.convolution import Conv1d as Conv1d
    from octavo.core.convolution import Conv2d as Conv2d
    from octavo.core.embedding import Embedding as Embedding
    from octavo.core.half_linear import HalfLinear as HalfLinear
    from octavo.core.linear import Linear as Linear
    from octavo.core.linear import linear_together as linear_together
    from octavo.core.recurrent import Gru as Gru
    from octavo.core.recurrent import GruCell as GruCell
    from octavo.core.recurrent import Lstm as Lstm
    from octavo.core.recurrent import LstmCell as LstmCell
    from octavo.core.recurrent import Rnn as Rnn
    from octavo.core.recurrent import RnnCell as RnnCell

__all__ = [
    "Activation",
    "Conv1d",
    "Conv2d",
    "Embedding",
    "GroupedWeight",
    "Gru",
    "GruCell",
    "HalfLinear",
    "Linear",
    "Lstm",
    "LstmCell",
    "PackedWeight",
    "Part",
    "QuantizedWeight",
    "Rnn",
    "RnnCell",
    "WeightFormat",
    "aligned",
    "checksum",
    "cpu_features",
    "has_bfloat16_products",
    "isa",
    "isas",
    "linear_together",
    "num_threads",
    "pack",
    "packed_bytes",
    "part_seconds",
    "peak_gops",
    "quantize_packed",
    "quantize_rows",
    "quantize_weight",
    "read_gbps",
    "set_num_threads",
    "thread_backend",
    "unpack",
    "use_isa",
]

# The layers are built on this package.
_, __getattr__ = _lazy(
    __name__,
    {
        "octavo.core.convolution": "Conv1d Conv2d",
        "octavo.core.embedding": "Embedding",
        "octavo.core.half_linear": "HalfLinear",
        "octavo.core.linear": "Linear linear_together",
        "octavo.core.recurrent": "Gru GruCell Lstm LstmCell Rnn RnnCell",
    },
    " ".join(__all__),
)
