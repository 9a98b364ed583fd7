"""all-MiniLM-L6 as a float32 ONNX file without PyTorch: drawn from the checkpoint, as README does.

    python -m benchmarks.zoo.minilm_graph model.onnx

Needs Octavo's own dependencies and safetensors. The nodes are those of a usual export: MatMul and
Add for a linear layer, LayerNormalization, attention and Gelu in single steps.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.zoo.fetch import FetchError
from benchmarks.zoo.minilm_text import INPUT_NAMES, model_dir
from benchmarks.zoo.sessions import Array

OUTPUT = "last_hidden_state"
_OPSET, _IR = 17, 8
_MASKED = np.float32(-1e9)  # added to the scores of padding: softmax makes exact zeros of it


@dataclass
class _Drawing:
    """Nodes so far, and the tensors that they name; a value has the name of its node."""

    weights: Mapping[str, Array]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    stored: dict[str, Array] = field(default_factory=dict)

    def op(self, op: str, *inputs: str, name: str, **attributes: Any) -> str:
        """One node and its only output."""
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def constant(self, name: str, value: Any, dtype: type = np.float32) -> str:
        """A tensor of its own, once for each name."""
        self.stored[name] = np.asarray(value, dtype)
        return name

    def weight(self, name: str, transposed: bool = False) -> str:
        """A tensor of the checkpoint; matrices are [outputs, inputs] there."""
        value = self.weights[name]
        self.stored[name] = np.ascontiguousarray(value.T) if transposed else value
        return name

    def linear(self, x: str, part: str) -> str:
        """`x` [batch, sequence, inputs] times the part's weight, and its bias."""
        name = _path(part)
        product = self.op("MatMul", x, self.weight(f"{part}.weight", True), name=f"{name}/MatMul")
        return self.op("Add", self.weight(f"{part}.bias"), product, name=f"{name}/Add")

    def norm(self, x: str, part: str, epsilon: float) -> str:
        """Over the last axis."""
        scale, bias = self.weight(f"{part}.weight"), self.weight(f"{part}.bias")
        return self.op(
            "LayerNormalization", x, scale, bias, name=_path(part), axis=-1, epsilon=epsilon
        )


def draw(weights: Mapping[str, Array], config: Mapping[str, Any]) -> onnx.ModelProto:
    """BERT without its pooler, of `weights` as `transformers.BertModel` names them.

    Inputs `input_ids`, `attention_mask`, `token_type_ids`: int64 [batch, sequence], both free;
    output `last_hidden_state`: float32 [batch, sequence, hidden_size].
    """
    drawing = _Drawing(weights)
    x = _embeddings(drawing, config["layer_norm_eps"])
    mask = _mask(drawing)
    for i in range(config["num_hidden_layers"]):
        x = _layer(drawing, x, mask, f"encoder.layer.{i}", config)
    drawing.op("Identity", x, name=OUTPUT)
    axes = ["batch", "sequence"]
    shapes = [(name, TensorProto.INT64, axes) for name in INPUT_NAMES]
    output = (OUTPUT, TensorProto.FLOAT, [*axes, config["hidden_size"]])
    graph = helper.make_graph(
        drawing.nodes,
        "all-MiniLM-L6",
        [helper.make_tensor_value_info(*shape) for shape in shapes],
        [helper.make_tensor_value_info(*output)],
        [numpy_helper.from_array(value, name) for name, value in drawing.stored.items()],
    )
    opset = [helper.make_opsetid("", _OPSET)]
    return helper.make_model(graph, opset_imports=opset, ir_version=_IR)


def _embeddings(drawing: _Drawing, epsilon: float) -> str:
    """Of words, token types and positions 0, 1, .. [batch, sequence, hidden]."""
    name, rows = "/bert/embeddings", {}
    length = drawing.op("Shape", "input_ids", name=f"{name}/Shape", start=1)
    first = drawing.constant("first_position", [0], np.int64)
    axis = drawing.constant("axis_of_positions", [1], np.int64)
    every = drawing.weight("embeddings.position_ids")
    drawing.op("Slice", every, first, length, axis, name="position_ids")
    for kind in ("word", "token_type", "position"):
        ids = {"word": "input_ids"}.get(kind, f"{kind}_ids")
        table = drawing.weight(f"embeddings.{kind}_embeddings.weight")
        rows[kind] = drawing.op("Gather", table, ids, name=f"{name}/{kind}_embeddings/Gather")
    both = drawing.op("Add", rows["word"], rows["token_type"], name=f"{name}/Add")
    added = drawing.op("Add", both, rows["position"], name=f"{name}/Add_1")
    return drawing.norm(added, "embeddings.LayerNorm", epsilon)


def _mask(drawing: _Drawing) -> str:
    """0 for a token, a large negative number for padding [batch, 1, 1, sequence]."""
    axes = drawing.constant("mask_axes", [1, 2], np.int64)
    wide = drawing.op("Unsqueeze", "attention_mask", axes, name="/bert/mask/Unsqueeze")
    real = drawing.op("Cast", wide, name="/bert/mask/Cast", to=TensorProto.FLOAT)
    padding = drawing.op("Sub", drawing.constant("one", 1), real, name="/bert/mask/Sub")
    return drawing.op("Mul", padding, drawing.constant("masked", _MASKED), name="/bert/mask/Mul")


def _gelu(drawing: _Drawing, x: str, name: str) -> str:
    """x / 2 * (1 + erf(x / sqrt(2)))."""
    root = drawing.constant("root_of_two", np.sqrt(2))
    erf = drawing.op("Erf", drawing.op("Div", x, root, name=f"{name}/Div"), name=f"{name}/Erf")
    share = drawing.op("Add", erf, drawing.constant("one", 1), name=f"{name}/Add")
    product = drawing.op("Mul", x, share, name=f"{name}/Mul")
    return drawing.op("Mul", product, drawing.constant("half", 0.5), name=f"{name}/Mul_1")


def _layer(drawing: _Drawing, x: str, mask: str, part: str, config: Mapping[str, Any]) -> str:
    """Attention and two linear layers, each with a residual and a norm."""
    name, epsilon = _path(part), config["layer_norm_eps"]
    attended = _attention(drawing, x, mask, f"{part}.attention.self", config)
    out = drawing.linear(attended, f"{part}.attention.output.dense")
    added = drawing.op("Add", out, x, name=f"{name}/attention/output/Add")
    x = drawing.norm(added, f"{part}.attention.output.LayerNorm", epsilon)
    inner = drawing.linear(x, f"{part}.intermediate.dense")
    active = _gelu(drawing, inner, f"{name}/intermediate/act")
    out = drawing.linear(active, f"{part}.output.dense")
    added = drawing.op("Add", out, x, name=f"{name}/output/Add")
    return drawing.norm(added, f"{part}.output.LayerNorm", epsilon)


def _attention(drawing: _Drawing, x: str, mask: str, part: str, config: Mapping[str, Any]) -> str:
    """softmax(q k' / sqrt(width of a head) + mask) v, the heads beside each other again."""
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    name = _path(part)
    split = drawing.constant("split", [0, 0, heads, hidden // heads], np.int64)
    parts = {}
    for kind, order in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
        made = drawing.linear(x, f"{part}.{kind}")
        apart = drawing.op("Reshape", made, split, name=f"{name}/{kind}/Reshape")
        parts[kind] = drawing.op("Transpose", apart, name=f"{name}/{kind}/Transpose", perm=order)
    scores = drawing.op("MatMul", parts["query"], parts["key"], name=f"{name}/MatMul")
    root = drawing.constant("root_of_width", np.sqrt(hidden // heads))
    scaled = drawing.op("Div", scores, root, name=f"{name}/Div")
    masked = drawing.op("Add", scaled, mask, name=f"{name}/Add")
    shares = drawing.op("Softmax", masked, name=f"{name}/Softmax", axis=-1)
    mixed = drawing.op("MatMul", shares, parts["value"], name=f"{name}/MatMul_1")
    turned = drawing.op("Transpose", mixed, name=f"{name}/Transpose", perm=[0, 2, 1, 3])
    merged = drawing.constant("merged", [0, 0, hidden], np.int64)
    return drawing.op("Reshape", turned, merged, name=f"{name}/Reshape")


def _path(part: str) -> str:
    """`/bert/encoder/layer.0/output`, as exporters name nodes, for `encoder.layer.0.output`."""
    return "/bert/" + part.replace(".", "/").replace("layer/", "layer.")


def main(argv: Sequence[str] | None = None) -> int:
    """Fetches the checkpoint, if it is not in the cache, and writes the file."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.zoo.minilm_graph",
        description="Write all-MiniLM-L6 as a float32 ONNX file (90 MB).",
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="the file to write")
    options = parser.parse_args(argv)
    try:
        from safetensors.numpy import load_file
    except ImportError:
        parser.error("safetensors is not installed; install it with: pip install safetensors")
    try:
        folder = model_dir()
    except FetchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    config = json.loads((folder / "config.json").read_text())
    onnx.save(draw(load_file(folder / "model.safetensors"), config), options.out)
    print(f"wrote {options.out}, {options.out.stat().st_size / 1e6:.1f} MB, from {folder}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
