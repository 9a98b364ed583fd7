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
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from octavo.core.convolution import filter_bytes, pack_filters, unpack_filters
from octavo.ir.operator import Operator, Packer, Written, attribute, damaged, stored_array
from octavo.ir.weight import Weight, WeightIntegers

WINDOW = ("strides", "dilations", "pads", "auto_pad")


@dataclass(frozen=True)
class Conv(Operator):
    """One layer; `bias` float32 [M] is a constant.

    `window` holds the attributes strides, dilations, pads and auto_pad, as far as they are given.
    """

    OPS: ClassVar[tuple[str, ...]] = ("Conv",)
    LEAST: ClassVar[int] = 4

    x: ir.Value
    weight: Weight
    group: int
    window: Mapping[str, Any]
    bias: ir.Value | None = None
    activation: str = "none"
    pool: tuple[int, ...] = ()
    """None given: every result is an output."""

    @property
    def takes_activation(self) -> bool:
        """Tell whether the node can apply an activation to its outputs, and applies none yet.

        It comes before the pool: where there is one, only what keeps the order of numbers fits.
        """
        return self.activation == "none"

    @property
    def takes_pool(self) -> bool:
        """Tell whether the node can have a pool, and has none yet.

        Filters over one channel have another kernel, without pools (long ones would have it).
        """
        return not self.pool and self.weight.shape[1] > 1

    def write(self, p: Packer) -> Written:
        def pack(
            integers: WeightIntegers,
        ) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32], None]:
            return pack_filters(integers.q, self.group).view(np.int8), integers.scale, None

        shape = self.weight.shape
        w = p.packed(self.weight, pack, layout=f"filters {self.group}")
        attributes = {
            "M": shape[0],
            "C": shape[1] * self.group,
            "group": self.group,
            "kernel_shape": list(shape[2:]),
            "activation": self.activation,
            "checksum": w.checksum,
        }
        if self.pool:
            attributes["pool"] = list(self.pool)
        inputs = [self.x, w.w, w.scale, p.bias(self.bias, shape[0])]
        return Written(inputs, attributes | dict(self.window))

    @classmethod
    def _read(cls, node: ir.Node, inputs: Sequence[ir.Value]) -> Conv:
        x, w, scale, bias = inputs[:4]
        group, outputs = attribute(node, "group"), attribute(node, "M")
        shape = (outputs, attribute(node, "C") // group, *attribute(node, "kernel_shape"))
        if len(shape) not in (3, 4) or outputs % group:
            raise damaged(node, f"has filters of the shape {shape} in {group} groups")
        for name in WINDOW:
            if name in node.attributes:
                attribute(node, name)  # raises ModelError

        def make() -> WeightIntegers:
            packed = np.ascontiguousarray(stored_array(w, filter_bytes(shape, group)))
            found = unpack_filters(packed.view(np.uint8), shape, group)
            return WeightIntegers(found, stored_array(scale, outputs))

        window = {name: node.attributes[name] for name in WINDOW if name in node.attributes}
        pool = tuple(attribute(node, "pool")) if "pool" in node.attributes else ()
        name = (w.name or "weight").removesuffix("_quantized")
        weight = Weight((w, scale), name, shape, make)
        return cls(x, weight, group, window, bias, attribute(node, "activation"), pool)
