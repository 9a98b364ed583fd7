"""A convolution as one node.

    Conv(X, W, W_scale, B)  ->  pool(activation(conv(X, W) + B))

X is [batch, C, L] or [batch, C, H, W]; each image is quantized with one scale and zero point. W is
int8 [bytes], filters [M, C / group, ...] as `octavo.core.convolution.pack_filters` makes them; the
vectors have M elements. Attributes are those of ONNX's Conv, and M, C, activation, checksum and
pool: MaxPool of the results with that kernel and as large strides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.convolution import pack_filters
from octavo.core.kernels import checksum
from octavo.graph.emitter import Emitter
from octavo.graph.native import DOMAIN

OP = "Conv"
WINDOW = ("strides", "dilations", "pads", "auto_pad")


@dataclass(frozen=True)
class FilterValues:
    """Packed filters of `shape` [M, C / group, ...] in the graph, and the scale of each output."""

    w: ir.Value
    scale: ir.Value
    shape: tuple[int, ...]
    group: int
    checksum: int


def filters_tensor(q: npt.NDArray[np.int8], group: int) -> tuple[npt.NDArray[np.int8], int]:
    """int8 [M, C / group, ...] as W is stored, and its checksum."""
    packed = pack_filters(q, group)
    return packed.view(np.int8), checksum(packed)


def conv(
    e: Emitter,
    x: ir.Value,
    filters: FilterValues,
    bias: ir.Value,
    window: Mapping[str, Any],
    *,
    name: str,
    out: str,
    activation: str = "none",
    pool: Sequence[int] = (),
) -> ir.Value:
    """One layer; `bias` float32 [M] is a constant of the node's graph, zeros where there is none.

    `window` holds the attributes strides, dilations, pads and auto_pad, as far as they are given.
    """
    pools = {"pool": list(pool)} if pool else {}
    return e.op(
        OP,
        [x, filters.w, filters.scale, bias],
        out=out,
        name=name,
        domain=DOMAIN,
        M=filters.shape[0],
        C=filters.shape[1] * filters.group,
        group=filters.group,
        kernel_shape=list(filters.shape[2:]),
        activation=activation,
        checksum=filters.checksum,
        **pools,
        **window,
    )


@dataclass(frozen=True)
class ConvNode:
    """A Conv node, taken apart."""

    x: ir.Value
    filters: FilterValues
    bias: ir.Value
    window: Mapping[str, Any]
    activation: str
    pool: tuple[int, ...] = ()
    """None given: every result is an output."""

    @classmethod
    def of(cls, node: ir.Node) -> ConvNode | None:
        """What `node` is made of; None for another operator."""
        if node.domain != DOMAIN or node.op_type != OP:
            return None
        x, w, scale, bias = (v for v in node.inputs if v is not None)
        a = node.attributes
        group = a["group"].as_int()
        shape = (a["M"].as_int(), a["C"].as_int() // group, *a["kernel_shape"].as_ints())
        filters = FilterValues(w, scale, shape, group, a["checksum"].as_int())
        window = {name: a[name] for name in WINDOW if name in a}
        pool = tuple(a["pool"].as_ints()) if "pool" in a else ()
        return cls(x, filters, bias, window, a["activation"].as_string(), pool)

    @property
    def takes_activation(self) -> bool:
        """Whether the node can apply an activation to its outputs, and applies none yet.

        It comes before the pool: where there is one, only what keeps the order of numbers fits.
        """
        return self.activation == "none"

    @property
    def takes_pool(self) -> bool:
        """Whether the node can have a pool, and has none yet.

        Filters over one channel have another kernel, without pools (long ones would have it).
        """
        return not self.pool and self.filters.shape[1] > 1

    def draw(self, e: Emitter, *, name: str, out: str) -> ir.Value:
        """The node again."""
        return conv(
            e,
            self.x,
            self.filters,
            self.bias,
            self.window,
            name=name,
            out=out,
            activation=self.activation,
            pool=self.pool,
        )
