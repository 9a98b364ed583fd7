"""`octavo.onnx.session`: opens a file the way it needs, refuses with a reason, needs little."""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from octavo.core import ort_library
from octavo.errors import ModelError
from octavo.onnx import quantize_dynamic
from tests.graphs import mlp, normal

# Not `import ... as`: the package has a function of the same name.
sessions: Any = importlib.import_module("octavo.onnx.session")
PRECISION = "session.x64quantprecision"
OLD_X86 = ["sse2", "fma", "avx2", "avx512f", "avx512bw", "avx512vl"]


def integer_model(said: Mapping[str, str], external: bool = False) -> onnx.ModelProto:
    """uint8 [M, 64] times int8 [64, 32] of full range: saturates where a processor can."""
    weight = np.where(np.arange(64 * 32).reshape(64, 32) % 3, 127, 126).astype(np.int8)
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, ["m", 64])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, ["m", 32])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    helper.set_model_props(model, dict(said))
    return model


def written(folder: Path, **said: str) -> Path:
    path = folder / "model.onnx"
    onnx.save(integer_model({f"octavo.{k}": v for k, v in said.items()}), path)
    return path


def has_features(monkeypatch: pytest.MonkeyPatch, features: list[str]) -> None:
    monkeypatch.setattr("octavo.core.kernels.cpu_features", lambda: features)


def entry(session: ort.InferenceSession) -> str | None:
    try:
        return str(session.get_session_options().get_session_config_entry(PRECISION))
    except RuntimeError:
        return None


def test_the_package_has_the_function_however_it_is_reached() -> None:
    """Importing a submodule binds its name in the package, where the function should be."""
    script = """
import octavo.onnx.session
import octavo.onnx
from octavo.onnx import session
assert callable(session)
assert callable(octavo.onnx.session)
assert callable(octavo.onnx.session)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_opens_on_the_cpu_and_computes(tmp_path: Path) -> None:
    session = sessions.session(written(tmp_path, cpu="vnni"))
    assert session.get_providers() == ["CPUExecutionProvider"]
    x = np.full((2, 64), 255, np.uint8)
    weight = numpy_helper.to_array(integer_model({}).graph.initializer[0]).astype(np.int32)
    assert np.array_equal(session.run(None, {"x": x})[0], x.astype(np.int32) @ weight)


@pytest.mark.parametrize("vnni", ["avx512vnni", "avxvnni", "amxint8"])
def test_processors_with_vnni_get_no_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vnni: str
) -> None:
    has_features(monkeypatch, [*OLD_X86, vnni])
    assert entry(sessions.session(written(tmp_path, cpu="vnni"))) is None


def test_arm_gets_no_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_features(monkeypatch, ["neon"])
    assert entry(sessions.session(written(tmp_path, cpu="vnni"))) is None


@pytest.mark.parametrize("said", [{}, {"cpu": "any"}])
def test_files_that_are_not_made_for_vnni_get_no_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, str]
) -> None:
    has_features(monkeypatch, OLD_X86)
    assert entry(sessions.session(written(tmp_path, **said))) is None


def test_old_x86_gets_the_precise_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry is one that ONNX Runtime knows: on x86 it turns the weight into uint8."""
    has_features(monkeypatch, OLD_X86)
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    session = sessions.session(written(tmp_path, cpu="vnni"), sess_options=options)
    assert entry(session) == "1"
    if "sse2" in importlib.import_module("octavo._native").cpu_features():
        optimized = onnx.load(tmp_path / "optimized.onnx")
        types = {i.data_type for i in optimized.graph.initializer if len(i.dims) == 2}
        assert types == {TensorProto.UINT8}


def test_an_entry_that_the_caller_set_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_features(monkeypatch, OLD_X86)
    options = ort.SessionOptions()
    options.add_session_config_entry(PRECISION, "0")
    assert entry(sessions.session(written(tmp_path, cpu="vnni"), sess_options=options)) == "0"


def test_options_and_providers_are_the_callers(tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = sessions.session(
        str(written(tmp_path, cpu="vnni")), ["CPUExecutionProvider"], options
    )
    assert session.get_session_options().intra_op_num_threads == 1


def test_a_newer_onnxruntime_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, min_onnxruntime="99.1")
    with pytest.raises(ModelError, match=rf"needs ONNX Runtime 99\.1 .* {ort.__version__}"):
        sessions.session(path)


@pytest.mark.parametrize("least", ["1.17", ort.__version__, ort.__version__.rpartition(".")[0]])
def test_the_least_onnxruntime_opens_it(tmp_path: Path, least: str) -> None:
    sessions.session(written(tmp_path, min_onnxruntime=least))


def native_file(folder: Path) -> Path:
    path = folder / "native.onnx"
    quantize_dynamic(mlp(), path, target="native")
    return path


def test_native_files_open_with_the_library(tmp_path: Path) -> None:
    path = native_file(tmp_path)
    session = sessions.session(path)
    assert session.run(None, {"x": normal(4, 32)})[0].shape == (4, 32)
    assert sessions.metadata(path)["octavo.target"] == "native"


@pytest.mark.parametrize("before", [0, 1, 2])
def test_options_may_have_the_library_already(tmp_path: Path, before: int) -> None:
    """ONNX Runtime takes a domain twice, and then opens no session."""
    path, options = native_file(tmp_path), ort.SessionOptions()
    for _ in range(before):
        options.register_custom_ops_library(sessions.custom_ops_library())
    for _ in range(2):
        session = sessions.session(path, sess_options=options)
        assert session.run(None, {"x": normal(4, 32)})[0].shape == (4, 32)
    assert len(ort.InferenceSession(path, options).get_outputs()) == 1


def test_the_library_is_beside_the_native_module() -> None:
    library = Path(sessions.custom_ops_library())
    native = Path(str(importlib.import_module("octavo._native").__file__))
    assert library == native.parent / "liboctavo_ort.so" and library.is_file()


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = native_file(tmp_path)
    monkeypatch.setattr(ort_library, "LIBRARY", "liboctavo_none.so")
    for open_it in (sessions.custom_ops_library, lambda: sessions.session(path)):
        with pytest.raises(
            ModelError,
            match=r"liboctavo_none\.so is missing: .* again, or use target portable",
        ):
            open_it()


def test_a_library_that_does_not_load_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, broken = native_file(tmp_path), tmp_path / "liboctavo_ort.so"
    broken.write_bytes(b"not a library")
    monkeypatch.setattr(sessions, "custom_ops_library", lambda: str(broken))
    with pytest.raises(ModelError, match=r"liboctavo_ort\.so"):
        sessions.session(path)


def test_without_the_library_the_metadata_says_what_is_missing(tmp_path: Path) -> None:
    path = native_file(tmp_path)
    with pytest.raises(Exception, match=r"ai\.octavo"):
        ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    said = sessions.metadata(path)["octavo.operators"]
    assert "octavo.onnx.session(path)" in said and "register_custom_ops_library" in said


def test_portable_files_do_without_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "portable.onnx"
    quantize_dynamic(mlp(), path)
    monkeypatch.setattr(ort_library, "LIBRARY", "liboctavo_none.so")
    assert "octavo.operators" not in sessions.metadata(path)
    sessions.session(path)


def test_missing_file_directory_and_unreadable(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"none\.onnx does not exist"):
        sessions.session(tmp_path / "none.onnx")
    with pytest.raises(ModelError, match=r"is a directory without an \.onnx file"):
        sessions.session(tmp_path)
    loop = tmp_path / "loop.onnx"
    loop.symlink_to(loop)
    with pytest.raises(ModelError, match=r"loop\.onnx cannot be read"):
        sessions.session(loop)


@pytest.mark.parametrize(
    "content",
    [b"", b"hello, this is text\n", b"PK\x03\x04" + b"\0" * 99, b"\xff" * 40, b"\x08\x08"],
    ids=["empty", "text", "zip", "ones", "no-graph"],
)
def test_what_is_no_model_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "not.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=r"not\.onnx is not an ONNX model"):
        sessions.session(path)


def test_a_file_cut_short_anywhere_is_a_model_error(tmp_path: Path) -> None:
    whole = integer_model({"octavo.cpu": "vnni", "k": "v" * 200}).SerializeToString()
    path = tmp_path / "cut.onnx"
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        try:
            sessions.metadata(path)
        except ModelError:
            continue
        # Cut between two fields: what is left is a shorter file, well formed.
        onnx.load_from_string(whole[:length])


def test_a_graph_that_onnxruntime_refuses(tmp_path: Path) -> None:
    model = integer_model({})
    model.graph.node[0].op_type = "NoSuchOp"
    onnx.save(model, tmp_path / "odd.onnx")
    with pytest.raises(ModelError, match=r"odd\.onnx: ONNX Runtime .* cannot open it.*NoSuchOp"):
        sessions.session(tmp_path / "odd.onnx")


def test_external_data_that_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "big.onnx"
    onnx.save(integer_model({}), path, save_as_external_data=True, location="w", size_threshold=0)
    sessions.session(path)
    (tmp_path / "w").unlink()
    with pytest.raises(ModelError, match="that file belongs in the same folder"):
        sessions.session(path)


def test_metadata_is_read_past_gigabytes_without_reading_them(tmp_path: Path) -> None:
    path = tmp_path / "huge.onnx"
    gap = 3 << 30
    tail = onnx.ModelProto()
    helper.set_model_props(tail, {"octavo.cpu": "any"})
    with path.open("wb") as file:
        # Field 7 (graph), bytes; its length as a varint; a hole of that length; the rest.
        file.write(b"\x3a" + bytes([0x80, 0x80, 0x80, 0x80, 0x0C]))
        file.seek(gap, os.SEEK_CUR)
        file.write(tail.SerializeToString())
    assert sessions.metadata(path) == {"octavo.cpu": "any"}


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.text(max_size=300), st.text(max_size=300), max_size=5))
def test_metadata_is_what_onnx_reads(
    tmp_path_factory: pytest.TempPathFactory, said: dict[str, str]
) -> None:
    path = tmp_path_factory.mktemp("m") / "model.onnx"
    onnx.save(integer_model(said), path)
    assert sessions.metadata(path) == {p.key: p.value for p in onnx.load(path).metadata_props}
    assert sessions.metadata(path) == said


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=120))
def test_no_bytes_are_more_than_a_model_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("m") / "model.onnx"
    path.write_bytes(content)
    with contextlib.suppress(ModelError):
        sessions.metadata(path)


def test_serving_needs_no_onnx(tmp_path: Path) -> None:
    script = f"""
import sys
for name in ("onnx", "onnx_ir", "onnxscript", "pydantic", "ruamel", "typer", "rich", "torch"):
    sys.modules[name] = None  # importing it fails
import importlib
module = importlib.import_module("octavo.onnx.session")
assert "onnxruntime" not in sys.modules
assert module.metadata({str(written(tmp_path, cpu="vnni"))!r}) == {{"octavo.cpu": "vnni"}}
module.session({str(tmp_path / "model.onnx")!r})
"""
    subprocess.run([sys.executable, "-c", script], check=True)
