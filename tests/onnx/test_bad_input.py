"""What cannot be converted: a clear error, the input untouched, nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from octavo.errors import (
    AlreadyQuantizedError,
    ModelError,
    NothingQuantizedError,
    OctavoError,
    OptionError,
    OutputError,
)
from octavo.onnx import quantize_dynamic
from tests.graphs import F32, build, mlp, normal, refused, save, snapshot

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00"


# Not a model -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"import torch\nprint('hello')\n" * 20,
        np.random.default_rng(1).bytes(5000),
        PNG,
        b"\0" * 4096,
        b"\xff" * 4096,
        b'{"model": "json"}',
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
    ],
    ids=["empty", "text", "random", "png", "zeros", "ones", "json", "git-lfs pointer"],
)
def test_a_file_that_is_no_model(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "thing.onnx"
    path.write_bytes(content)
    with refused(tmp_path, ModelError, str(path), "is not an ONNX model", "bytes"):
        quantize_dynamic(path, tmp_path / "out.onnx")


def test_a_zip(tmp_path: Path) -> None:
    path = tmp_path / "model.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model.onnx", mlp().SerializeToString())
    with refused(tmp_path, ModelError, str(path), "is not an ONNX model"):
        quantize_dynamic(path, tmp_path / "out.onnx")


def test_a_directory_and_what_does_not_exist(tmp_path: Path) -> None:
    words = "is a directory without an .onnx file, and no checkpoint of transformers: it holds"
    with refused(tmp_path, ModelError, words):
        quantize_dynamic(tmp_path, tmp_path / "out.onnx")
    with refused(tmp_path, ModelError, "none.onnx does not exist"):
        quantize_dynamic(tmp_path / "none.onnx", tmp_path / "out.onnx")


def test_paths_that_cannot_be_opened(tmp_path: Path) -> None:
    file = save(mlp(), tmp_path / "m.onnx")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    os.mkfifo(tmp_path / "fifo")
    for path, problem in (
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
    with refused(tmp_path, OutputError, "is not UTF-8", "give another name"):
        quantize_dynamic(path, tmp_path / os.fsdecode(b"o\xff.onnx"))


# Truncated and damaged -------------------------------------------------------------------------


def lstm_in_if() -> onnx.ModelProto:
    """Nested structure: an If whose branches hold an LSTM and a Gemm with attributes."""
    lstm = helper.make_node("LSTM", ["x", "W", "R"], ["hs"], name="lstm", hidden_size=8)
    flat = helper.make_node("ReduceSum", ["hs", "axes"], ["a"], keepdims=0)
    value = numpy_helper.from_array(normal(24, 8), "k")
    constant = helper.make_node("Constant", [], ["K"], value=value)
    shape = helper.make_node("Reshape", ["x", "to"], ["flat"])
    gemm = helper.make_node("Gemm", ["flat", "K"], ["b"], name="gemm", alpha=0.5)
    outs = [helper.make_tensor_value_info(n, F32, None) for n in "ab"]
    then = helper.make_graph([lstm, flat], "then", [], outs[:1])
    other = helper.make_graph([constant, shape, gemm], "else", [], outs[1:])
    nodes = [
        helper.make_node("Equal", ["sr", "rate"], ["is"]),
        helper.make_node("If", ["is"], ["y"], name="if", then_branch=then, else_branch=other),
    ]
    weights = {
        "W": normal(1, 32, 12),
        "R": normal(1, 32, 8, seed=1),
        "axes": np.array([0, 1]),
        "to": np.array([-1, 24]),
        "rate": np.array(16000),
    }
    inputs: list[Any] = [("x", F32, ["t", 2, 12]), ("sr", TensorProto.INT64, [])]
    return build(nodes, inputs, [("y", F32, None)], weights)


def embedding_conv() -> onnx.ModelProto:
    """Gather, Transpose, Conv, ReduceMean, MatMul behind a Transpose of its weight."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"], name="embed"),
        helper.make_node("Transpose", ["e"], ["c"], perm=[0, 2, 1]),
        helper.make_node("Conv", ["c", "k", "kb"], ["f"], name="conv", pads=[1, 1]),
        helper.make_node("ReduceMean", ["f"], ["p"], axes=[2], keepdims=0),
        helper.make_node("Transpose", ["w"], ["wt"]),
        helper.make_node("MatMul", ["p", "wt"], ["y"], name="out"),
    ]
    weights = {
        "table": normal(300, 16),
        "k": normal(16, 16, 3),
        "kb": normal(16),
        "w": normal(20, 16, seed=1),
    }
    inputs: list[Any] = [("ids", TensorProto.INT64, ["b", "s"])]
    return build(nodes, inputs, [("y", F32, ["b", 20])], weights)


MODELS = {"mlp": mlp, "lstm in if": lstm_in_if, "embedding and conv": embedding_conv}


WHOLE = {name: make().SerializeToString() for name, make in MODELS.items()}


@pytest.mark.parametrize("name", MODELS)
def test_the_models_that_are_damaged_below_are_sound(tmp_path: Path, name: str) -> None:
    (tmp_path / "m.onnx").write_bytes(WHOLE[name])
    ops = ["MatMul", "Gemm", "LSTM", "Gather", "Conv"]
    report = quantize_dynamic(tmp_path / "m.onnx", tmp_path / "out.onnx", ops)
    assert report.verification.status == "passed"
    assert len(report.quantized) == {"mlp": 2, "lstm in if": 2, "embedding and conv": 3}[name]


@pytest.mark.parametrize("name", MODELS)
def test_a_file_cut_short_anywhere(tmp_path: Path, name: str) -> None:
    """Every length near the ends and across the graph's structure, steps inside the weights."""
    data = WHOLE[name]
    path = tmp_path / "m.onnx"
    lengths = {*range(200), *range(len(data) - 200, len(data)), *range(0, len(data), 61)}
    # Without the last field, the version of com.microsoft, it is a shorter model.
    ends = {data.rindex(b"B", 0, data.rindex(b"com.microsoft"))}
    for length in sorted(lengths):
        path.write_bytes(data[:length])
        if length in ends:
            continue
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


FLIPS = 100 if os.environ.get("OCTAVO_EXAMPLES") == "new" else 40  # as many in `make test-all`


@pytest.mark.parametrize("name", MODELS)
@settings(deadline=None, max_examples=FLIPS, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, 1 << 20), min_size=1, max_size=3))
@example(flips=[561])  # of the Conv model: a Transpose by axes that its input has not
def test_flipped_bits(
    tmp_path_factory: pytest.TempPathFactory, name: str, flips: list[int]
) -> None:
    """An error of ours, or a result that was verified; never another exception or a crash."""
    places = structure_of(WHOLE[name])
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


# Damaged in a way that has a name --------------------------------------------------------------


def damaged_models() -> Iterator[tuple[str, onnx.ModelProto, str, str]]:
    model = mlp()
    del model.graph.initializer[1]
    yield "lost initializer", model, "MatMul 'layer1' reads 'w1'", "export the model again"
    model = mlp()
    del model.graph.node[0]
    yield "lost node", model, "Relu 'relu0' reads 'h0'", "export the model again"
    model = mlp()
    model.graph.output[0].name = "z"
    yield "unknown output", model, "graph output 'z'", "export the model again"
    model = mlp()
    model.graph.initializer[0].dims[0] = 31
    yield "short shape", model, "tensor 'w0' holds 4096 bytes", "(31, 32) of float takes 3968"
    model = mlp()
    model.graph.initializer[0].dims[0] = -32
    yield "negative shape", model, "tensor 'w0' has the shape (-32, 32)", "export it again"
    model = mlp()
    model.graph.initializer[0].data_type = 0
    yield "no type", model, "tensor 'w0' has no element type", "export it again"
    model = mlp()
    model.graph.initializer[0].data_type = 99
    yield "unknown type", model, "is not a valid ONNX model", "99"
    model = mlp()
    model.graph.initializer[0].ClearField("raw_data")
    yield "no data", model, "tensor 'w0' holds 0 numbers", "takes 1024"
    model = mlp()
    model.graph.node[1].op_type = "Unknown"
    model.graph.node[1].attribute.add(name="axis", i=1)
    yield "untyped attribute", model, "attribute 'axis' has no type", "get the file again"
    model = mlp()
    del model.graph.node[1].input[:]
    yield "no inputs", model, "Relu 'relu0' has 0 inputs", "Relu takes 1 to 1"
    model = mlp()
    model.graph.node[0].input[1] = ""
    yield "input left out", model, "MatMul 'layer0' leaves out one of the 2 inputs", "MatMul"
    model = mlp()
    model.graph.node[1].op_type = "Cast"
    yield "no attribute", model, "Cast 'relu0' has no attribute 'to'", "Cast needs"
    model = mlp()
    model.graph.node[1].op_type = "LeakyRelu"
    model.graph.node[1].attribute.append(helper.make_attribute("alpha", 1))
    yield "attribute's type", model, "'alpha' of type int", "LeakyRelu takes float"
    model = mlp()
    del model.graph.node[:]
    yield "no nodes", model, "has no nodes", ""
    model = mlp()
    model.ClearField("graph")
    yield "no graph", model, "holds no graph", ""
    model = mlp()
    del model.opset_import[0]
    yield "no opset", model, "does not say which opset", "export it again"
    for opset in (6, 99):
        model = mlp()
        model.opset_import[0].version = opset
        yield f"opset {opset}", model, f"has opset {opset}; 7 to 26 are supported", ""
    model = mlp()
    sparse = model.graph.sparse_initializer.add()
    sparse.values.CopyFrom(numpy_helper.from_array(normal(3), "sparse"))
    yield "sparse", model, "sparse initializer 'sparse'", "dense"
    model = mlp()
    model.graph.initializer[0].CopyFrom(
        numpy_helper.from_array(np.full((32, 32), np.nan, np.float32), "w0")
    )
    yield "nan weight", model, "layer 'layer0' (MatMul)", "'w0'"


DAMAGED = {name: (model, *texts) for name, model, *texts in damaged_models()}


@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize("as_proto", [False, True], ids=["path", "ModelProto"])
def test_what_is_damaged_is_named(tmp_path: Path, name: str, as_proto: bool) -> None:
    model, *texts = DAMAGED[name]
    path = save(model, tmp_path / "m.onnx")
    label = "(ModelProto)" if as_proto else str(path)
    with refused(tmp_path, ModelError, *([] if name == "nan weight" else [label]), *texts):
        quantize_dynamic(model if as_proto else path, tmp_path / "out.onnx")


def test_names_that_are_not_text(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(mlp().SerializeToString().replace(b"layer0", b"l\xffyer0"))
    with refused(tmp_path, ModelError, "NodeProto.name is not UTF-8 text: b'l\\xffyer0'"):
        quantize_dynamic(path, tmp_path / "out.onnx")


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


def test_a_quantized_model(tmp_path: Path) -> None:
    path = save(mlp(), tmp_path / "m.onnx")
    quantize_dynamic(path, tmp_path / "q.onnx")
    with refused(
        tmp_path, AlreadyQuantizedError, "q.onnx is quantized already", "allow_quantized=True"
    ):
        quantize_dynamic(tmp_path / "q.onnx", tmp_path / "out.onnx")


def test_nothing_to_quantize(tmp_path: Path) -> None:
    relu = helper.make_node("Relu", ["x"], ["y"])
    path = save(build([relu], [("x", F32, ["n"])], [("y", F32, ["n"])], {}), tmp_path / "m.onnx")
    with refused(
        tmp_path, NothingQuantizedError, str(path), "no layer that holds weights", "allow_nothing"
    ):
        quantize_dynamic(path, tmp_path / "out.onnx")
    report = quantize_dynamic(path, tmp_path / "out.onnx", allow_nothing=True)
    assert report.verification.error == 0.0


# Outputs that cannot be written ----------------------------------------------------------------


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return save(mlp(), tmp_path / "m.onnx")


def test_output_folders_that_are_not_there(tmp_path: Path, source: Path) -> None:
    with refused(tmp_path, OutputError, str(tmp_path / "none"), "does not exist"):
        quantize_dynamic(source, tmp_path / "none" / "out.onnx")
    with refused(tmp_path, OutputError, str(source), "is not a folder"):
        quantize_dynamic(source, source / "out.onnx")


def test_outputs_that_are_no_file(tmp_path: Path, source: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    with refused(tmp_path, OutputError, f"{folder} is a directory", "give a file name"):
        quantize_dynamic(source, folder)
    os.mkfifo(tmp_path / "fifo")
    with refused(tmp_path, OutputError, "is not a regular file", "give another name"):
        quantize_dynamic(source, tmp_path / "fifo")
    with pytest.raises(OutputError, match="/dev/null is not a regular file"):
        quantize_dynamic(source, "/dev/null")
    assert not Path("/dev/null").is_file()


def test_names_too_long_for_the_file_system(tmp_path: Path, source: Path) -> None:
    with refused(tmp_path, OutputError, "File name too long", "give a shorter name"):
        quantize_dynamic(source, tmp_path / ("n" * 300))
    name = "n" * 252  # fits, but not with ".data" behind it
    with refused(tmp_path, OutputError, "File name too long", "give a shorter name"):
        quantize_dynamic(source, tmp_path / name, use_external_data_format=True)


def test_the_output_is_the_input(tmp_path: Path, source: Path) -> None:
    (tmp_path / "symlink.onnx").symlink_to(source)
    os.link(source, tmp_path / "hardlink.onnx")
    for name in ("m.onnx", "symlink.onnx", "hardlink.onnx", "../" + tmp_path.name + "/m.onnx"):
        with refused(tmp_path, OutputError, "is the input", "give another name"):
            quantize_dynamic(source, tmp_path / name)
    with refused(tmp_path, OutputError, "is the input"):
        quantize_dynamic(tmp_path / "symlink.onnx", source)


def test_the_output_is_the_inputs_data(tmp_path: Path) -> None:
    path = save(mlp(), tmp_path / "m.onnx", external="weights.bin")
    with refused(tmp_path, OutputError, "weights.bin is the input, or part of it"):
        quantize_dynamic(path, tmp_path / "weights.bin")


def read_only_folder() -> str | None:
    """A folder that even root cannot write to."""
    if os.geteuid() != 0:
        return None
    for name in ("/proc", "/sys"):
        if Path(name).is_dir() and not (Path(name) / "x").exists():
            return name
    return None


def test_a_folder_that_cannot_be_written_to(tmp_path: Path, source: Path) -> None:
    place = read_only_folder()
    if place is None:
        folder = tmp_path / "mine"
        folder.mkdir(0o500)
        place = str(folder)
    with refused(tmp_path, OutputError, f"{place}/out.onnx cannot be written"):
        quantize_dynamic(source, f"{place}/out.onnx")


@pytest.mark.parametrize("external", [False, True], ids=["one file", "external data"])
def test_a_limit_on_file_sizes(tmp_path: Path, external: bool) -> None:
    """The write fails at many places: the weights, the model, and what is buffered till the end."""
    source = save(mlp(6, 64), tmp_path / "m.onnx")
    out = tmp_path / "out.onnx"
    out.write_bytes(b"what was here before")
    before = snapshot(tmp_path)
    limits = [0, 1, 1000, 4096, 5000, 8192, 10_000, 20_000, 24_000]
    code = f"""
import resource
from octavo.onnx import quantize_dynamic
from octavo.errors import OctavoError
for limit in {limits}:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        quantize_dynamic({str(source)!r}, {str(out)!r}, use_external_data_format={external})
    except OctavoError as error:
        print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == len(limits), done
    for line in lines:
        assert line.startswith(f"OutputError {out} cannot be written: File too large"), line
        assert "raise the limit on file sizes" in line
    assert snapshot(tmp_path) == before


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """64 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small disk can only be mounted by root")
    yield place
    subprocess.run(["umount", place], check=True)


@pytest.mark.parametrize("external", [False, True], ids=["one file", "external data"])
@pytest.mark.parametrize("width", [128, 256, 512])
def test_a_full_disk(tmp_path: Path, small_disk: Path, external: bool, width: int) -> None:
    source = save(mlp(4, width), tmp_path / "m.onnx")
    small = save(mlp(), tmp_path / "small.onnx")
    out = small_disk / "out.onnx"
    quantize_dynamic(small, out, use_external_data_format=True)
    with refused(small_disk, OutputError, str(out), "No space left", "free some space"):
        quantize_dynamic(source, out, use_external_data_format=external)
