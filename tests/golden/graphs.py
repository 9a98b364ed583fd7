"""Small seeded ONNX models, node by node."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]
Feeds = dict[str, Array]
Model = tuple[Any, Feeds]
"""A proto or a path, and what it is fed with."""
F32, F16, BF16 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16
F64, I32, I64, BOOL = TensorProto.DOUBLE, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL
MS = "com.microsoft"
Step = tuple[str, str, str, dict[str, Any]]


def step(op: str, inputs: str = "x", out: str = "y", **attributes: Any) -> Step:
    """A node to be, for `Graph.steps`."""
    return op, inputs, out, attributes


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> Array:
    """Standard normal float32."""
    drawn = np.random.default_rng(seed).standard_normal(shape) * scale
    return np.asarray(drawn, np.float32)


class Graph:
    """A model in the making; values are strings."""

    def __init__(self, opset: int = 17, ir: int = 8, **more: Any) -> None:
        self.opset, self.ir, self.more = opset, ir if opset < 21 else 10, more
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.feeds: Feeds = {}
        self.drawn = 0

    def input(self, name: str, shape: Sequence[Any] | None, feed: Any, kind: int = F32) -> str:
        """Declares an input and what it is fed with."""
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        self.feeds[name] = np.asarray(feed)
        return name

    def output(self, name: str, shape: Sequence[Any] | None = None, kind: int = F32) -> None:
        """Declares an output."""
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def const(self, name: str, array: Any, kind: int | None = None) -> str:
        """An initializer; once a name."""
        if all(c.name != name for c in self.constants):
            a = np.asarray(array)
            if kind is None:
                self.constants.append(numpy_helper.from_array(a, name))
            else:
                self.constants.append(
                    helper.make_tensor(name, kind, a.shape, a.reshape(-1).tolist())
                )
        return name

    def weight(self, name: str, *shape: int, scale: float | None = None) -> str:
        """A seeded weight whose columns differ in size."""
        self.drawn += 1
        fan = shape[-2] if len(shape) > 1 else 4
        w = normal(*shape, seed=self.drawn, scale=scale or 1 / np.sqrt(fan))
        if len(shape) > 1:
            w = w * np.geomspace(0.3, 3, shape[-1], dtype=np.float32)
        return self.const(name, w)

    def constants_of(self, given: dict[str, Any]) -> None:
        """Several of them by name; a tuple is the shape of a weight that is drawn."""
        for name, value in given.items():
            self.weight(name, *value) if isinstance(value, tuple) else self.const(name, value)

    def __call__(self, op: str, inputs: Sequence[str] | str, out: str, **attributes: Any) -> str:
        """A node named after its first output; an input that is a number is a constant of it."""
        ins = inputs.split() if isinstance(inputs, str) else list(inputs)
        outs = out.split()
        name = attributes.pop("name", f"{outs[0]}_node")
        for i, said in enumerate(ins):
            if re.fullmatch(r"-?[\d.]+", said):
                ins[i] = self.const("c" + said.translate({45: "m", 46: "_"}), np.float32(said))
        ins = ["" if i == "_" else i for i in ins]
        outs = ["" if o == "_" else o for o in outs]
        self.nodes.append(helper.make_node(op, ins, outs, name=name, **attributes))
        return outs[0]

    def steps(self, steps: Sequence[Step]) -> str:
        """Several nodes; the name of what the last gives."""
        return [self(op, inputs, out, **more) for op, inputs, out, more in steps][-1]

    def axes(self, op: str, x: str, out: str, axes: Sequence[int], **attributes: Any) -> str:
        """An operator whose axes are an attribute in old opsets and an input in new ones."""
        since = 13 if op in ("Squeeze", "Unsqueeze", "ReduceSum") else 18
        if self.opset < since:
            return self(op, [x], out, axes=list(axes), **attributes)
        name = self.const("axes_" + "_".join(map(str, axes)).replace("-", "m"), np.array(axes))
        return self(op, [x, name], out, **attributes)

    def model(self, **more: Any) -> Model:
        """The model with its feeds."""
        graph = helper.make_graph(self.nodes, "g", self.inputs, self.outputs, self.constants)
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid(MS, 1)]
        made = helper.make_model(
            graph, opset_imports=imports, ir_version=self.ir, **{**self.more, **more}
        )
        return made, dict(self.feeds)


def body(
    nodes: Sequence[onnx.NodeProto], name: str, inputs: Any, outputs: Any, consts: Any = ()
) -> Any:
    """A subgraph; inputs and outputs are (name, type, shape)."""
    ins, outs = ([helper.make_tensor_value_info(*v) for v in infos] for infos in (inputs, outputs))
    return helper.make_graph(list(nodes), name, ins, outs, list(consts))


def node(op: str, inputs: str, out: str, **attributes: Any) -> onnx.NodeProto:
    """A node for a subgraph."""
    ins = ["" if i == "_" else i for i in inputs.split()]
    outs = out.split()
    return helper.make_node(op, ins, outs, name=f"{outs[0]}_node", **attributes)


def in_type(model: Model, kind: int) -> Model:
    """The model with every float32 tensor, input and output in another float type."""
    proto, feeds = model
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    for tensor in made.graph.initializer:
        if tensor.data_type == F32:
            array = numpy_helper.to_array(tensor).astype(dtype)
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for info in (*made.graph.input, *made.graph.output, *made.graph.value_info):
        if info.type.tensor_type.elem_type == F32:
            info.type.tensor_type.elem_type = kind
    turned = {n: a.astype(dtype) if a.dtype == np.float32 else a for n, a in feeds.items()}
    return made, turned
