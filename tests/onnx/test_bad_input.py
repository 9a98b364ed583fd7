"""What cannot be converted: a clear error, the input untouched, nothing left behind."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from octavo.errors import ModelError, OctavoError, OptionError, OutputError
from octavo.onnx import quantize_dynamic
from tests import fresh
from tests.graphs import mlp, normal, refused, save, snapshot, text


def zipped(data: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model.onnx", data)
    return file.getvalue()


CONTENTS = {
    "empty": b"",
    "text": b"import torch\nprint('hello')\n" * 20,
    "random": np.random.default_rng(1).bytes(5000),
    "png": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(20),
    "zeros": b"\0" * 4096,
    "ones": b"\xff" * 4096,
    "json": b'{"model": "json"}',
    "zip": zipped(mlp().SerializeToString()),
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_a_file_that_is_no_model(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "thing.onnx"
    path.write_bytes(content)
    with refused(tmp_path, ModelError, str(path), "is not an ONNX model", "bytes"):
        quantize_dynamic(path, tmp_path / "out.onnx")


def test_paths_that_cannot_be_opened(tmp_path: Path) -> None:
    file = save(mlp(), tmp_path / "m.onnx")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    os.mkfifo(tmp_path / "fifo")
    for path, problem in (
        (tmp_path / "folder", "is a directory without an .onnx file"),
        (file / "inside", "does not exist"),
        (tmp_path / "loop", "is a link that leads nowhere"),
        (tmp_path / "dangling", "is a link that leads nowhere"),
        (tmp_path / ("n" * 300), "cannot be read"),
        (tmp_path / "fifo", "is not a regular file"),
        (Path("/dev/zero"), "is not a regular file"),
    ):
        with refused(tmp_path, ModelError, problem):
            quantize_dynamic(path, tmp_path / "out.onnx")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = save(mlp(), tmp_path / "m.onnx")
    path.chmod(0)
    with pytest.raises(ModelError, match="cannot be read: Permission denied"):
        quantize_dynamic(path, tmp_path / "out.onnx")


@pytest.mark.parametrize("thing", [None, 7, b"bytes", ["m.onnx"], object()])
def test_arguments_that_are_no_path(tmp_path: Path, thing: Any) -> None:
    path = save(mlp(), tmp_path / "m.onnx")
    with refused(tmp_path, OptionError, "model_input", "ModelProto"):
        quantize_dynamic(thing, tmp_path / "out.onnx")
    with refused(tmp_path, OptionError, "model_output", "path"):
        quantize_dynamic(path, thing)


def test_a_path_that_is_not_utf8(tmp_path: Path) -> None:
    path = save(mlp(), tmp_path / os.fsdecode(b"m\xff.onnx"))
    quantize_dynamic(path, tmp_path / "out.onnx", verify=False)
    onnx.checker.check_model(onnx.load(tmp_path / "out.onnx"))
    with refused(tmp_path, OutputError, "is not UTF-8"):
        quantize_dynamic(path, tmp_path / os.fsdecode(b"o\xff.onnx"))


def lstm_in_if() -> onnx.ModelProto:
    """Nested structure: an If whose branches hold an LSTM and a Gemm with attributes."""
    body = """is = Equal (sr, rate) [if] y = If (is) <
        then_branch = then () => (float[] a) { [lstm] hs = LSTM <hidden_size = 8> (x, W, R)
            a = ReduceSum <keepdims = 0> (hs, axes) },
        else_branch = other () => (float[] b) { flat = Reshape (x, to)
            [gemm] b = Gemm <alpha = 0.5> (flat, K) }>"""
    weights = {"W": normal(1, 32, 12), "R": normal(1, 32, 8, seed=1), "axes": np.array([0, 1])}
    weights |= {"to": np.array([-1, 24]), "rate": np.array(16000)}
    model = text(body, "float[t, 2, 12] x, int64 sr", weights=weights)
    (other,) = (a.g for a in model.graph.node[1].attribute if a.g.name == "other")
    value = numpy_helper.from_array(normal(24, 8), "k")
    other.node.insert(0, helper.make_node("Constant", [], ["K"], value=value))
    return model


def embedding_conv() -> onnx.ModelProto:
    """Gather, Transpose, Conv, ReduceMean, MatMul behind a Transpose of its weight."""
    body = """[embed] e = Gather (table, ids) c = Transpose <perm = [0, 2, 1]> (e)
        [conv] f = Conv <pads = [1, 1]> (c, k, kb)
        p = ReduceMean <axes = [2], keepdims = 0> (f) wt = Transpose (w)
        [out] y = MatMul (p, wt)"""
    weights = {"table": normal(300, 16), "k": normal(16, 16, 3), "kb": normal(16)}
    weights["w"] = normal(20, 16, seed=1)
    return text(body, "int64[b, s] ids", "float[b, 20] y", weights)


MODELS = {"mlp": (mlp, 2), "lstm in if": (lstm_in_if, 2), "embedding and conv": (embedding_conv, 3)}
WHOLE = {name: make().SerializeToString() for name, (make, _) in MODELS.items()}


@pytest.mark.parametrize("name", MODELS)
def test_the_models_that_are_damaged_below_are_sound(tmp_path: Path, name: str) -> None:
    (tmp_path / "m.onnx").write_bytes(WHOLE[name])
    ops = ["MatMul", "Gemm", "LSTM", "Gather", "Conv"]
    report = quantize_dynamic(tmp_path / "m.onnx", tmp_path / "out.onnx", ops)
    assert report.verification.status == "passed"
    assert len(report.quantized) == MODELS[name][1]


@pytest.mark.parametrize("name", MODELS)
def test_a_file_cut_short_anywhere(tmp_path: Path, name: str) -> None:
    """Lengths near the ends and across the graph's structure, steps inside the weights."""
    data = WHOLE[name]
    path = tmp_path / "m.onnx"
    lengths = {*range(0, 200, 5), *range(len(data) - 200, len(data), 5), *range(0, len(data), 263)}
    # Without the last field, the version of com.microsoft, it is a shorter model.
    end = data.rindex(b"B", 0, data.rindex(b"com.microsoft"))
    for length in sorted(lengths - {end}):
        path.write_bytes(data[:length])
        with refused(tmp_path, ModelError, str(path)):
            quantize_dynamic(path, tmp_path / "out.onnx")


def structure_of(data: bytes) -> list[int]:
    """Positions outside of the long runs of weights, where a flipped bit changes the meaning."""
    model = onnx.load_from_string(data)
    inside: set[int] = set()
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) > 64:
            at = data.index(tensor.raw_data)
            inside.update(range(at, at + len(tensor.raw_data)))
    return [i for i in range(len(data)) if i not in inside]


PLACES = {name: structure_of(data) for name, data in WHOLE.items()}
FLIPS = 100 if os.environ.get("OCTAVO_EXAMPLES") == "new" else 10  # as many in `make test-all`


@pytest.mark.parametrize("name", MODELS)
@settings(deadline=None, max_examples=FLIPS, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, 1 << 20), min_size=1, max_size=3))
@example(flips=[561])  # of the Conv model: a Transpose by axes that its input has not
def test_flipped_bits(
    tmp_path_factory: pytest.TempPathFactory, name: str, flips: list[int]
) -> None:
    """An error of ours, or a result that was verified; never another exception or a crash."""
    places = PLACES[name]
    damaged = bytearray(WHOLE[name])
    for flip in flips:
        damaged[places[flip // 8 % len(places)]] ^= 1 << flip % 8
    folder = tmp_path_factory.mktemp("flip")
    path = folder / "m.onnx"
    path.write_bytes(damaged)
    before = snapshot(folder)
    try:
        report = quantize_dynamic(path, folder / "out.onnx")
    except OctavoError as error:
        assert str(error)
        assert snapshot(folder) == before
    else:
        assert report.verification.status in ("passed", "compared", "unchecked")
        assert report.verification.status == "passed" or report.verification.detail
        assert sorted(p.name for p in folder.iterdir()) == ["m.onnx", "out.onnx"]


def dims(size: int) -> Callable[[onnx.ModelProto], Any]:
    return lambda m: m.graph.initializer[0].dims.__setitem__(0, size)


def element(code: int) -> Callable[[onnx.ModelProto], Any]:
    return lambda m: setattr(m.graph.initializer[0], "data_type", code)


def relu(op: str, *attributes: onnx.AttributeProto) -> Callable[[onnx.ModelProto], Any]:
    """Makes another operator of the first Relu."""

    def change(model: onnx.ModelProto) -> None:
        model.graph.node[1].op_type = op
        model.graph.node[1].attribute.extend(attributes)

    return change


DAMAGED: dict[str, tuple[Any, ...]] = {
    "lost node": (lambda m: m.graph.node.pop(0), "Relu 'relu0' reads 'h0'"),
    "unknown output": (lambda m: setattr(m.graph.output[0], "name", "z"), "graph output 'z'"),
    "short shape": (dims(31), "tensor 'w0' holds 4096 bytes", "(31, 32) of float takes 3968"),
    "negative shape": (dims(-32), "tensor 'w0' has the shape (-32, 32)"),
    "no type": (element(0), "tensor 'w0' has no element type"),
    "unknown type": (element(99), "is not a valid ONNX model", "99"),
    "no data": (
        lambda m: m.graph.initializer[0].ClearField("raw_data"),
        "tensor 'w0' holds 0 numbers",
        "takes 1024",
    ),
    "untyped attribute": (
        relu("Unknown", onnx.AttributeProto(name="axis", i=1)),
        "attribute 'axis' has no type",
    ),
    "no inputs": (lambda m: m.graph.node[1].input.pop(), "Relu 'relu0' has 0 inputs"),
    "input left out": (
        lambda m: m.graph.node[0].input.__setitem__(1, ""),
        "MatMul 'layer0' leaves out one of the 2 inputs",
    ),
    "no attribute": (relu("Cast"), "Cast 'relu0' has no attribute 'to'"),
    "attribute's type": (
        relu("LeakyRelu", helper.make_attribute("alpha", 1)),
        "'alpha' of type int",
        "LeakyRelu takes float",
    ),
    "no graph": (lambda m: m.ClearField("graph"), "holds no graph"),
    "opset 99": (lambda m: setattr(m.opset_import[0], "version", 99), "has opset 99; 7 to"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_is_damaged_is_named(tmp_path: Path, name: str) -> None:
    damage, *texts = DAMAGED[name]
    model = mlp()
    damage(model)
    path, out = save(model, tmp_path / "m.onnx"), tmp_path / "out.onnx"
    with refused(tmp_path, ModelError, str(path), *texts):
        quantize_dynamic(path, out)
    with refused(tmp_path, ModelError, "(ModelProto)", *texts):
        quantize_dynamic(model, out)


def test_names_that_are_not_text(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(mlp().SerializeToString().replace(b"layer0", b"l\xffyer0"))
    with refused(tmp_path, ModelError, "NodeProto.name is not UTF-8 text: b'l\\xffyer0'"):
        quantize_dynamic(path, tmp_path / "out.onnx")


def test_attributes_that_are_not_text(tmp_path: Path) -> None:
    """Of operators whose words are known; others may hold what they like."""
    model = mlp()
    model.graph.node[0].attribute.append(helper.make_attribute("mode", b"l\xff"))
    with refused(tmp_path, ModelError, "MatMul 'layer0': its attribute 'mode' is not UTF-8 text"):
        quantize_dynamic(model, tmp_path / "out.onnx")


def test_two_functions_that_call_each_other(tmp_path: Path) -> None:
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = mlp()
    model.opset_import.append(imports[1])
    for name, other in ("AB", "BA"):
        call = helper.make_node(other, ["x"], ["y"], domain="own")
        model.functions.append(helper.make_function("own", name, ["x"], ["y"], [call], imports))
    model.graph.node[1].op_type, model.graph.node[1].domain = "A", "own"
    path = save(model, tmp_path / "m.onnx")
    with refused(tmp_path, ModelError, str(path), "local functions cannot be inlined"):
        quantize_dynamic(path, tmp_path / "out.onnx")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return save(mlp(), tmp_path / "m.onnx")


def test_outputs_that_are_no_file(tmp_path: Path, source: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    for out, problem in (
        (tmp_path / "none" / "out.onnx", f"{tmp_path / 'none'} of the output does not exist"),
        (source / "out.onnx", "is not a folder"),
        (tmp_path / "folder", "folder is a directory"),
        (tmp_path / "fifo", "fifo is not a regular file"),
        (Path("/dev/null"), "/dev/null is not a regular file"),
        (tmp_path / ("n" * 300), "File name too long"),
    ):
        with refused(tmp_path, OutputError, problem):
            quantize_dynamic(source, out)
    assert not Path("/dev/null").is_file()
    name = "n" * 252  # fits, but not with ".data" behind it
    with refused(tmp_path, OutputError, "File name too long"):
        quantize_dynamic(source, tmp_path / name, use_external_data_format=True)


def test_the_output_is_the_input(tmp_path: Path, source: Path) -> None:
    (tmp_path / "symlink.onnx").symlink_to(source)
    os.link(source, tmp_path / "hardlink.onnx")
    for name in ("m.onnx", "symlink.onnx", "hardlink.onnx", "../" + tmp_path.name + "/m.onnx"):
        with refused(tmp_path, OutputError, "is the input"):
            quantize_dynamic(source, tmp_path / name)
    with refused(tmp_path, OutputError, "is the input"):
        quantize_dynamic(tmp_path / "symlink.onnx", source)
    path = save(mlp(), tmp_path / "e.onnx", external="weights.bin")
    with refused(tmp_path, OutputError, "weights.bin is the input, or part of it"):
        quantize_dynamic(path, tmp_path / "weights.bin")


@pytest.mark.parametrize(
    "external",
    [
        pytest.param(False, id="one file", marks=pytest.mark.slow),
        pytest.param(True, id="external data"),
    ],
)
def test_a_limit_on_file_sizes(tmp_path: Path, external: bool) -> None:
    """The write fails at many places: the weights, the model, and what is buffered till the end."""
    source = save(mlp(6, 64), tmp_path / "m.onnx")
    out = tmp_path / "out.onnx"
    out.write_bytes(b"what was here before")
    before = snapshot(tmp_path)
    limits = [0, 1, 1000, 4096, 8192, 20_000, 24_000]
    code = f"""
import resource
from octavo.onnx import quantize_dynamic
from octavo.errors import OctavoError
for limit in {limits}:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        quantize_dynamic({str(source)!r}, {str(out)!r}, use_external_data_format={external})
    except OctavoError as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print(type(error).__name__, error)
"""
    lines = fresh.python(code).stdout.splitlines()
    assert len(lines) == len(limits), lines
    for line in lines:
        assert line.startswith(f"OutputError {out} cannot be written: File too large"), line
    assert snapshot(tmp_path) == before
