"""What the transcripts of errors find in their folder: small models, data, modules, configurations.

A line `@ NAME EXPRESSION` of a transcript calls one of these functions with the `path` to write.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import octavo.onnx

HERE = Path(__file__).parent


def write_shared(folder: Path) -> None:
    """What all cases share: models, what both targets make of one, data, modules."""
    model = mlp(2, 32)
    onnx.save(model, folder / "m.onnx")
    for target in ("portable", "native"):
        octavo.onnx.quantize_dynamic(model, folder / f"{target}.onnx", target=target, verify=False)
    relu = helper.make_node("Relu", ["x"], ["y"])
    graph = helper.make_graph([relu], "g", model.graph.input, model.graph.output)
    onnx.save(_model(graph), folder / "bare.onnx")
    (folder / "text.onnx").write_text("This is not a model.\n" * 20)
    (folder / "cut.onnx").write_bytes((folder / "m.onnx").read_bytes()[:5000])
    np.savez(folder / "data.npz", x=np.ones((4, 32), np.float32))
    for name in ("models.py", "accuracies.py", "conf.yaml"):
        (folder / name).write_bytes((HERE / "shared" / name).read_bytes())
    (folder / "q.safetensors").write_bytes(_saved())


def checkpoint(path: Path, *left_out: str, **config: Any) -> None:
    """A folder of transformers with a tiny BertModel, but for the files `left_out`."""
    path.mkdir()
    for name, data in _checkpoint(json.dumps(config)).items():
        if name not in left_out:
            (path / name).write_bytes(data)


@cache
def _checkpoint(config: str) -> dict[str, bytes]:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": 32, "intermediate_size": 64, "vocab_size": 100}
    counts = {"num_attention_heads": 2, "num_hidden_layers": 1, "max_position_embeddings": 64}
    with tempfile.TemporaryDirectory() as folder:
        BertModel(BertConfig(**sizes, **counts, **json.loads(config))).save_pretrained(folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def mlp(layers: int, width: int) -> onnx.ModelProto:
    """x [m, width] -> (MatMul `layer0` -> Relu) -> ... -> y."""
    rng = np.random.default_rng(0)
    nodes, weights, x = [], [], "x"
    for i in range(layers):
        w = rng.standard_normal((width, width), np.float32) * np.float32((2 / width) ** 0.5)
        weights.append(numpy_helper.from_array(w, f"w{i}"))
        nodes.append(helper.make_node("MatMul", [x, f"w{i}"], [f"h{i}"], name=f"layer{i}"))
        x = "y" if i == layers - 1 else f"r{i}"
        nodes.append(helper.make_node("Relu", [f"h{i}"], [x], name=f"relu{i}"))
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["m", width]) for name in ("x", "y")
    ]
    return _model(helper.make_graph(nodes, "g", values[:1], values[1:], weights))


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _changed(path: Path, change: Callable[[onnx.ModelProto], object]) -> None:
    """The small chain after a change that makes it unfit."""
    model = mlp(2, 32)
    change(model)
    onnx.save(model, path)


def chain(path: Path, layers: int, width: int) -> None:
    onnx.save(mlp(layers, width), path)


def opset(path: Path, version: int) -> None:
    _changed(path, lambda model: setattr(model.opset_import[0], "version", version))


def lost_weight(path: Path) -> None:
    _changed(path, lambda model: model.graph.initializer.pop(1))


def no_nodes(path: Path) -> None:
    _changed(path, lambda model: model.graph.ClearField("node"))


def no_opset(path: Path) -> None:
    _changed(path, lambda model: model.ClearField("opset_import"))


def nan_weight(path: Path) -> None:
    weight = numpy_helper.from_array(np.full((32, 32), np.nan, np.float32), "w0")
    _changed(path, lambda model: model.graph.initializer[0].CopyFrom(weight))


def sparse(path: Path) -> None:
    values = numpy_helper.from_array(np.ones(3, np.float32), "s")
    _changed(path, lambda model: model.graph.sparse_initializer.add().values.CopyFrom(values))


def other_output(path: Path) -> None:
    def change(model: onnx.ModelProto) -> None:
        model.graph.output[0].name = model.graph.node[-1].output[0] = "scores"

    _changed(path, change)


def external(path: Path, keep: int | None = None) -> None:
    """Weights in weights.bin, of which `keep` bytes are there (None: all)."""
    onnx.save(
        mlp(2, 64), path, save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    data = path.with_name("weights.bin")
    if keep:
        data.write_bytes(data.read_bytes()[:keep])
    elif keep == 0:
        data.unlink()


def outside(path: Path) -> None:
    """Weights in a file that is said to lie in the folder above."""
    external(path)
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../weights.bin"
    path.write_bytes(model.SerializeToString())


def positions(path: Path, most: int) -> None:
    """ids [1, n] -> rows of a table, plus the first n rows of one with `most` of them."""
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        g (int64[b, n] ids) => (float[b, n, 4] y)
        <int64[1] zero = {{0}}, int64[1] one = {{1}}, float[9, 4] table, float[{most}, 4] places>
        {{
            shape = Shape (ids)
            end = Slice (shape, one, one_more, zero)
            some = Slice (places, zero, end, zero)
            rows = Gather (table, ids)
            y = Add (rows, some)
        }}
    """)
    for name, rows in (("table", 9), ("places", most)):
        array = np.ones((rows, 4), np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    model.graph.initializer.append(numpy_helper.from_array(np.array([2]), "one_more"))
    onnx.save(model, path)


def lookup(path: Path) -> None:
    """A table of 100 rows; ids.npz asks for row 999."""
    nodes = [helper.make_node("Gather", ["table", "ids"], ["y"], name="lookup")]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    table = numpy_helper.from_array(np.ones((100, 64), np.float32), "table")
    onnx.save(_model(helper.make_graph(nodes, "g", [ids], [y], [table])), path)
    np.savez(path.with_name("ids.npz"), ids=np.array([999]))


def not_finite(path: Path) -> None:
    """One weight takes its tensor's scale, so that small ones become 0; then comes 1/x."""
    w = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    w[:, 1], w[0, 1], w[0, 0] = 1e-4, 1e-4, 100
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], name="fc"),
        helper.make_node("Gather", ["h", "second"], ["g"], axis=1),
        helper.make_node("Reciprocal", ["g"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["m", 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weights = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.array([1]), "second")]
    onnx.save(_model(helper.make_graph(nodes, "g", [x], [y], weights)), path)
    np.savez(path.with_name("ones.npz"), x=np.ones((4, 64), np.float32))


def arrays(path: Path, **given: Any) -> None:
    np.savez(path, **given)


def demanding(path: Path) -> None:
    """A quantized model that says that it needs an ONNX Runtime of the future."""
    octavo.onnx.quantize_dynamic(mlp(2, 32), path, verify=False)
    model = onnx.load(path)
    props = {p.key: p.value for p in model.metadata_props} | {"octavo.min_onnxruntime": "99.0"}
    del model.metadata_props[:]
    helper.set_model_props(model, props)
    onnx.save(model, path)


def flipped(path: Path) -> None:
    """A native model with one bit of a weight turned over."""
    octavo.onnx.quantize_dynamic(mlp(2, 32), path, target="native", verify=False)
    model = onnx.load(path)
    (weight,) = [i for i in model.graph.initializer if i.name == "w0_quantized"]
    raw = bytearray(weight.raw_data)
    raw[100] ^= 1
    weight.raw_data = bytes(raw)
    onnx.save(model, path)


def short_data(path: Path) -> None:
    """A native model whose data file is cut short."""
    octavo.onnx.quantize_dynamic(
        mlp(2, 300), path, target="native", verify=False, use_external_data_format=True
    )
    data = path.with_name(f"{path.name}.data")
    data.write_bytes(data.read_bytes()[:5000])


@cache
def _saved() -> bytes:
    """What `octavo.torch.save` writes of the model of models.py."""
    import torch
    from torch import nn

    import octavo.torch

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.value = nn.Linear(8, 16), nn.Linear(16, 4)

    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "q.safetensors")
        octavo.torch.save(octavo.torch.quantize_dynamic(Net()), path)
        return path.read_bytes()


def saved(path: Path, end: int | None = None, more: bytes = b"") -> None:
    """The file of a quantized module, cut at `end` or with bytes behind it."""
    path.write_bytes(_saved()[:end] + more)


def says(path: Path, **said: Any) -> None:
    """The file of a quantized module whose metadata say something else of it."""
    raw = _saved()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    metadata = json.loads(header["__metadata__"]["octavo"])
    layer = said.pop("query", None)
    metadata |= said
    if layer:
        metadata["layers"]["query"].update(layer)
    header["__metadata__"]["octavo"] = json.dumps(metadata)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])


def plain_safetensors(path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    save_file({"a": torch.ones(3)}, path, {"format": "pt"})
