"""Reading and writing .onnx files past protobuf: what comes out is what protobuf would give."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from octavo.errors import ModelError
from octavo.files.protobuf import WireError
from octavo.files.staging import Staging
from octavo.onnx.read import wire
from octavo.onnx.read.load import load
from octavo.onnx.read.tensor_store import TensorStore
from octavo.onnx.write.save import save as write
from tests.graphs import build, mlp, normal, run, save

FLOATS = "FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ BFLOAT16"
TYPES: dict[str, Any] = {
    "FLOAT": np.float32,
    "DOUBLE": np.float64,
    "BOOL": np.bool_,
    **{f"{s}INT{n}": np.dtype(f"{s}int{n}".lower()) for s in ("", "U") for n in (8, 16, 32, 64)},
    **{"FLOAT16": np.float16, "COMPLEX64": np.complex64, "COMPLEX128": np.complex128},
    **{name: getattr(ml_dtypes, name.lower().replace("8e", "8_e")) for name in FLOATS.split()},
    **{"UINT4": ml_dtypes.uint4, "INT4": ml_dtypes.int4},
}
SIZES = [0, 1, 3, 255, 1023, 1024, 1025, 2049, 5000]  # around the bytes from which data stays put


def tensor_of(name: str, kind: str, size: int, raw: bool, seed: int = 0) -> onnx.TensorProto:
    """Any bytes are numbers of any type but bool; NaN payloads must survive too."""
    rng = np.random.default_rng(seed)
    code = getattr(TensorProto, kind)
    if kind == "STRING":
        return helper.make_tensor(name, code, [size], [rng.bytes(i % 7) for i in range(size)])
    if raw:
        bits = ir.DataType[kind].bitwidth
        data = rng.bytes(-(-size * bits // 8))
        if kind == "BOOL":
            data = bytes(b & 1 for b in data)
        if bits == 4 and size % 2:  # half of the last byte is padding
            data = data[:-1] + bytes([data[-1] & 15])
        return TensorProto(name=name, data_type=code, dims=[size], raw_data=data)
    values = rng.integers(0, 2, size).astype(TYPES[kind])
    return helper.make_tensor(name, code, [size], values)


def with_tensors(tensors: list[onnx.TensorProto]) -> onnx.ModelProto:
    model = mlp()
    model.graph.initializer.extend(tensors)
    return model


def resolved(model: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """With the references of `skeleton` replaced by the bytes they refer to."""
    content = path.read_bytes()
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            place = {entry.key: entry.value for entry in tensor.external_data}
            assert place.pop("location") == wire.OWN_FILE
            begin, length = int(place["offset"]), int(place["length"])
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = content[begin : begin + length]
    return model


def rewritten(path: Path, out: Path) -> None:
    """Through `load` and `write_model`, as a conversion that changes nothing."""
    with Staging(out) as staging:
        write(load(path).model, staging, TensorStore(None), {})
        staging.commit()


def same_tensor(a: onnx.TensorProto, b: onnx.TensorProto) -> bool:
    """The same numbers, whichever field holds them."""
    if (a.name, a.data_type, list(a.dims)) != (b.name, b.data_type, list(b.dims)):
        return False
    if a.data_type == TensorProto.STRING:
        return list(a.string_data) == list(b.string_data)
    return ir.from_proto(a).tobytes() == ir.from_proto(b).tobytes()


def tensors(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    return {t.name: t for t in model.graph.initializer}


@pytest.mark.parametrize("raw", [True, False], ids=["raw", "typed"])
@pytest.mark.parametrize("kind", [*TYPES, "STRING"])
def test_every_type_and_size(tmp_path: Path, kind: str, raw: bool) -> None:
    model = with_tensors([tensor_of(f"t{s}", kind, s, raw, s) for s in SIZES])
    path = save(model, tmp_path / "m.onnx")
    assert resolved(wire.skeleton(path), path) == model
    rewritten(path, tmp_path / "out.onnx")
    result = onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(result)
    after, before = tensors(result), tensors(model)
    assert list(after) == list(before)
    for name, tensor in before.items():
        assert same_tensor(tensor, after[name]), name
    x = {"x": normal(3, 32)}
    assert np.array_equal(run(path, x)[0], run(tmp_path / "out.onnx", x)[0])


def test_large_tensors_are_left_where_they_are(tmp_path: Path) -> None:
    path = save(mlp(3, 512), tmp_path / "m.onnx")
    assert wire.skeleton(path).ByteSize() < 2000
    source = load(path)
    assert source.bytes == path.stat().st_size
    assert not source.data_files


def test_shapes_names_and_texts_survive(tmp_path: Path) -> None:
    model = with_tensors([])
    w = model.graph.initializer.add()
    w.CopyFrom(numpy_helper.from_array(normal(2, 0, 3), "empty"))
    model.graph.initializer.append(numpy_helper.from_array(np.float32(3), "scalar"))
    model.graph.initializer.append(numpy_helper.from_array(normal(4, 5, 60), "große/名前:0"))
    model.graph.initializer[-1].doc_string = "about it"
    model.graph.initializer[-1].metadata_props.add(key="k", value="v")
    model.doc_string, model.producer_name = "text\nof two lines", "me"
    model.metadata_props.add(key="own", value="ключ")
    model.graph.doc_string = "graph text"
    path = save(model, tmp_path / "m.onnx")
    assert resolved(wire.skeleton(path), path) == model
    rewritten(path, tmp_path / "out.onnx")
    result = onnx.load(tmp_path / "out.onnx")
    for name, tensor in tensors(model).items():
        assert tensors(result)[name].dims == tensor.dims
        assert tensors(result)[name].doc_string == tensor.doc_string
        assert tensors(result)[name].metadata_props == tensor.metadata_props
    for field in ("doc_string", "producer_name", "ir_version", "metadata_props"):
        assert getattr(result, field) == getattr(model, field)
    assert result.graph.doc_string == "graph text"


@pytest.mark.parametrize("ir_version", [3, 4, 8, 13])
def test_ir_versions(tmp_path: Path, ir_version: int) -> None:
    """Up to 3 every initializer is a graph input too."""
    model = mlp()
    model.ir_version = ir_version
    del model.opset_import[1]
    if ir_version == 3:
        model.opset_import[0].version = 8
        for name in ("w0", "w1"):
            model.graph.input.append(helper.make_tensor_value_info(name, 1, [32, 32]))
    path = save(model, tmp_path / "m.onnx")
    assert resolved(wire.skeleton(path), path) == model
    rewritten(path, tmp_path / "out.onnx")
    result = onnx.load(tmp_path / "out.onnx")
    onnx.checker.check_model(result)
    assert result.ir_version == ir_version
    assert [i.name for i in result.graph.input] == [i.name for i in model.graph.input]


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def checked(path: Path, data: bytes) -> onnx.ModelProto:
    """`skeleton` gives what protobuf gives."""
    path.write_bytes(data)
    model = onnx.load_from_string(data)
    assert resolved(wire.skeleton(path), path) == model
    return model


def test_a_graph_in_two_pieces(tmp_path: Path) -> None:
    """Two occurrences of a message field are merged, as one concatenated file may have them."""
    whole = mlp(2, 40)
    first, second = onnx.GraphProto(), onnx.GraphProto()
    first.CopyFrom(whole.graph)
    for part in ("node", "initializer", "output"):
        del getattr(first, part)[1 if part != "output" else 0 :]
    second.node.extend(whole.graph.node[1:])
    second.initializer.extend(whole.graph.initializer[1:])
    second.output.extend(whole.graph.output)
    whole.ClearField("graph")
    outside = whole.SerializeToString()
    pieces = [field(7, first.SerializeToString()), outside, field(7, second.SerializeToString())]
    path = tmp_path / "m.onnx"
    model = checked(path, b"".join(pieces))
    assert len(model.graph.node) == 4
    rewritten(path, tmp_path / "out.onnx")
    x = normal(2, 40)
    assert np.array_equal(run(tmp_path / "out.onnx", {"x": x})[0], run(mlp(2, 40), {"x": x})[0])


def test_unknown_fields_are_kept(tmp_path: Path) -> None:
    unknown = field(900, b"from the future") + varint(901 << 3) + varint(1 << 60)
    unknown += varint(902 << 3 | 5) + b"four" + varint(903 << 3 | 1) + b"eight890"
    model = mlp()
    graph = model.graph.SerializeToString()
    model.ClearField("graph")
    data = unknown + field(7, unknown + graph + unknown) + model.SerializeToString() + unknown
    path = tmp_path / "m.onnx"
    checked(path, data)
    assert wire.skeleton(path).SerializeToString().count(b"from the future") == 4


def test_known_numbers_of_another_wire_type_are_unknown_fields(tmp_path: Path) -> None:
    model = mlp()
    odd = varint(7 << 3) + varint(3) + varint(7 << 3 | 5) + b"abcd"
    checked(tmp_path / "m.onnx", odd + model.SerializeToString() + odd)
    graph = model.graph.SerializeToString()
    model.ClearField("graph")
    odd = varint(5 << 3) + varint(9)
    checked(tmp_path / "m.onnx", model.SerializeToString() + field(7, odd + graph))


@pytest.mark.parametrize("sizes", [(4096, 4096), (4096, 8), (8, 4096), (8, 16)])
def test_the_last_raw_data_counts(tmp_path: Path, sizes: tuple[int, int]) -> None:
    pieces = [field(9, bytes([i + 1]) * size) for i, size in enumerate(sizes)]
    head = TensorProto(name="w", data_type=1, dims=[sizes[1] // 4]).SerializeToString()
    padding = field(12, b"d" * 2000)  # a doc_string, so that the tensor is large in any case
    graph = field(5, pieces[0] + head + pieces[1] + padding)
    model = checked(tmp_path / "m.onnx", field(7, graph))
    assert model.graph.initializer[0].raw_data == b"\2" * sizes[1]


def test_long_varints(tmp_path: Path) -> None:
    """A number may be padded with zero groups, up to ten bytes."""
    model = mlp()
    graph = model.graph.SerializeToString()
    model.ClearField("graph")
    length = bytearray(varint(len(graph)))
    length[-1] |= 0x80
    padded = varint(7 << 3 | 2) + bytes(length) + b"\x80\x80\x00" + graph
    checked(tmp_path / "m.onnx", model.SerializeToString() + padded)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\x08", b"\x3a\x05abc", b"\x00\x01", b"\x0b\x0c", b"\x3a\x80", b"\x3d\x01\x02",
        b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x3a\x04\x2a\x08ab",
    ],
)  # fmt: skip
def test_bytes_that_are_no_message(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    with pytest.raises((WireError, DecodeError)):
        wire.skeleton(path)
    with pytest.raises(ModelError, match=r"m\.onnx is not an ONNX model.*bytes"):
        load(path)


@settings(deadline=None, max_examples=150)
@given(st.binary(max_size=200))
def test_random_bytes_are_read_as_protobuf_reads_them(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "random.onnx"
    path.write_bytes(data)
    try:
        model = wire.skeleton(path)
    except (WireError, DecodeError):
        return
    assert model == onnx.ModelProto.FromString(data)


def write_bytes(model: onnx.ModelProto, weights: Mapping[str, ir.TensorProtocol]) -> bytes:
    values = [ir.Value(name=name, const_value=t) for name, t in weights.items()]
    file = io.BytesIO()
    wire.write_model(model, values, file)
    return file.getvalue()


def test_what_is_written_has_the_bytes_that_protobuf_writes() -> None:
    model = mlp()
    expected = onnx.ModelProto()
    expected.CopyFrom(model)
    weights = {t.name: ir.Tensor(numpy_helper.to_array(t)) for t in model.graph.initializer}
    del model.graph.initializer[:]
    data = write_bytes(model, weights)
    assert len(data) == expected.ByteSize()
    assert onnx.load_from_string(data) == expected


def test_tensors_of_every_origin_are_written(tmp_path: Path) -> None:
    """NumPy arrays of any shape and memory order, packed, lazy, in a file, from a message."""
    array = normal(6, 50)
    (tmp_path / "data").write_bytes(b"skip" + array.tobytes())
    packed = np.arange(7).astype(ml_dtypes.uint4)
    made = {
        "plain": ir.Tensor(array),
        "fortran": ir.Tensor(np.asfortranarray(array)),
        "strided": ir.Tensor(normal(12, 50)[::2]),
        "packed": ir.Tensor(packed, dtype=ir.DataType.UINT4),
        "message": ir.from_proto(numpy_helper.from_array(array)),
        "lazy": ir.LazyTensor(
            lambda: ir.Tensor(array), dtype=ir.DataType.FLOAT, shape=ir.Shape(array.shape)
        ),
        "scalar": ir.Tensor(np.array(1.5)),
        "empty": ir.Tensor(np.zeros((0, 3), np.int8)),
        "half": ir.Tensor(np.arange(6).astype(ml_dtypes.bfloat16)),
        "text": ir.StringTensor(np.array([b"a", b"bc"], object), shape=ir.Shape([2])),
    }
    external = ir.ExternalTensor(
        "data", 4, array.nbytes, ir.DataType.FLOAT, shape=ir.Shape([6, 50]), name="x",
        base_dir=tmp_path,
    )  # fmt: skip
    model = build([helper.make_node("Relu", ["x"], ["y"])], [], [], {})
    out = tmp_path / "m.onnx"
    out.write_bytes(write_bytes(model, {**made, "file": external}))
    result = tensors(onnx.load(out))
    for name in ("plain", "fortran", "message", "lazy", "file"):
        assert np.array_equal(numpy_helper.to_array(result[name]), array), name
    assert np.array_equal(numpy_helper.to_array(result["strided"]), normal(12, 50)[::2])
    assert np.array_equal(numpy_helper.to_array(result["packed"]), packed)
    assert list(result["text"].string_data) == [b"a", b"bc"]
    for name in ("plain", "fortran", "strided", "packed", "scalar", "empty", "half"):
        assert result[name].raw_data == made[name].tobytes(), name
        assert list(result[name].dims) == list(made[name].shape), name
