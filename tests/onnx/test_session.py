"""`octavo.onnx.session`: opens a file the way it needs, and refuses with a reason."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import octavo.onnx
from octavo.core import ort_library
from octavo.errors import ModelError, OptionError
from octavo.onnx import quantize_dynamic
from tests import fresh
from tests.graphs import mlp, normal, text

# Not `import ... as`: the package has a function of the same name.
sessions: Any = importlib.import_module("octavo.onnx.session")
PRECISION = "session.x64quantprecision"
OLD_X86 = ["sse2", "fma", "avx2", "avx512f", "avx512bw", "avx512vl"]
# Of full range: saturates where a processor can.
WEIGHT = np.where(np.arange(64 * 32).reshape(64, 32) % 3, 127, 126).astype(np.int8)


def integer_model(said: Mapping[str, str]) -> onnx.ModelProto:
    """uint8 [M, 64] times int8 [64, 32]."""
    body = "y = MatMulInteger (x, w)"
    model = text(body, "uint8[m, 64] x", "int32[m, 32] y", {"w": WEIGHT})
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
    fresh.python(
        """
        import octavo.onnx.session
        import octavo.onnx
        from octavo.onnx import session
        assert callable(session)
        assert callable(octavo.onnx.session)
        """
    )


def test_opens_on_the_cpu_and_computes(tmp_path: Path) -> None:
    session = sessions.session(written(tmp_path, cpu="vnni"))
    assert session.get_providers() == ["CPUExecutionProvider"]
    x = np.full((2, 64), 255, np.uint8)
    exact = x.astype(np.int32) @ WEIGHT.astype(np.int32)
    assert np.array_equal(session.run(None, {"x": x})[0], exact)


@pytest.mark.parametrize(
    ("features", "said", "expected"),
    [
        ([*OLD_X86, "avx512vnni"], {"cpu": "vnni"}, None),
        ([*OLD_X86, "avxvnni"], {"cpu": "vnni"}, None),
        ([*OLD_X86, "amxint8"], {"cpu": "vnni"}, None),
        (["neon"], {"cpu": "vnni"}, None),
        (OLD_X86, {}, None),
        (OLD_X86, {"cpu": "any"}, None),
        (OLD_X86, {"cpu": "vnni"}, "1"),
    ],
    ids=str,
)
def test_processors_without_vnni_get_the_precise_kernels_for_files_that_need_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    features: list[str],
    said: dict[str, str],
    expected: str | None,
) -> None:
    has_features(monkeypatch, features)
    assert entry(sessions.session(written(tmp_path, **said))) == expected


def test_the_entry_is_one_that_onnx_runtime_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On x86 it turns the weight into uint8."""
    has_features(monkeypatch, OLD_X86)
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    sessions.session(written(tmp_path, cpu="vnni"), sess_options=options)
    if "sse2" in importlib.import_module("octavo._native").cpu_features():
        optimized = onnx.load(tmp_path / "optimized.onnx")
        types = {i.data_type for i in optimized.graph.initializer if len(i.dims) == 2}
        assert types == {TensorProto.UINT8}


def test_options_and_providers_are_the_callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_features(monkeypatch, OLD_X86)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry(PRECISION, "0")
    path = str(written(tmp_path, cpu="vnni"))
    session = sessions.session(path, ["CPUExecutionProvider"], options)
    assert session.get_session_options().intra_op_num_threads == 1
    assert entry(session) == "0"


IN_MEMORY: dict[str, Callable[[Path], Any]] = {
    "bytes": Path.read_bytes,
    "bytearray": lambda path: bytearray(path.read_bytes()),
    "memoryview": lambda path: memoryview(path.read_bytes()),
    "an open file": lambda path: io.BufferedReader(io.BytesIO(path.read_bytes())),
    "BytesIO": lambda path: io.BytesIO(path.read_bytes()),
    "ModelProto": onnx.load,
}


def written_to_memory(path: Path) -> io.BytesIO:
    """It is at its end, as whatever has just been written."""
    file = io.BytesIO()
    onnx.save(onnx.load(path), file)
    return file


@pytest.mark.parametrize("features", [OLD_X86, [*OLD_X86, "avx512vnni"]], ids=["old", "vnni"])
@pytest.mark.parametrize("how", [*IN_MEMORY, "BytesIO at its end"])
@pytest.mark.parametrize("target", ["portable", "native"])
def test_models_in_memory(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    how: str,
    features: list[str],
) -> None:
    has_features(monkeypatch, features)
    path, feed = tmp_path / "q.onnx", {"x": normal(4, 32)}
    quantize_dynamic(mlp(), path, target=target, verify=False)
    of_file = sessions.session(path)
    held = sessions.session(IN_MEMORY.get(how, written_to_memory)(path))
    assert entry(held) == entry(of_file)
    np.testing.assert_array_equal(held.run(None, feed)[0], of_file.run(None, feed)[0])


def test_models_in_memory_with_a_data_file(tmp_path: Path) -> None:
    path, feed = tmp_path / "q.onnx", {"x": normal(4, 256)}
    quantize_dynamic(mlp(width=256), path, use_external_data_format=True, verify=False)
    want = sessions.session(path).run(None, feed)[0]
    assert (tmp_path / "q.onnx.data").is_file()
    whole = sessions.session(onnx.load(path))  # with what is in the data file
    np.testing.assert_array_equal(whole.run(None, feed)[0], want)
    options = ort.SessionOptions()
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(tmp_path)
    )
    told = sessions.session(path.read_bytes(), sess_options=options)
    np.testing.assert_array_equal(told.run(None, feed)[0], want)
    with pytest.raises(ModelError, match="model_external_initializers_file_folder_path"):
        sessions.session(path.read_bytes())


@pytest.mark.parametrize("model", [b"", b"no model", io.BytesIO(), onnx.ModelProto()], ids=range(4))
def test_what_is_no_model_in_memory(model: Any) -> None:
    with pytest.raises(ModelError, match=r"give the bytes of an \.onnx file, or its path"):
        sessions.session(model)


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("r", "is a file open as text; give .*, a file that open.path, .rb.. returns"),
        ("ab", "is a file that cannot be read .*; give .*, a file that open.path, .rb.. returns"),
    ],
)
def test_a_file_that_is_open_otherwise(mode: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "q.onnx"
    quantize_dynamic(mlp(), path, verify=False)
    with path.open(mode) as file, pytest.raises(OptionError, match=message):
        sessions.session(file)
    with pytest.raises(OptionError, match="cannot be read" if mode == "ab" else "as text"):
        sessions.session(file)  # closed


@pytest.mark.parametrize("model", [None, 3, [], io.StringIO("text"), np.zeros(3)], ids=range(5))
def test_what_is_neither_a_path_nor_a_model(model: Any) -> None:
    with pytest.raises(OptionError, match=r"give the path of an .onnx file, its bytes"):
        sessions.session(model)


def test_a_proto_of_2_gb_is_to_be_saved() -> None:
    class Large:
        def SerializeToString(self) -> bytes:
            raise ValueError("exceeds maximum protobuf size of 2GB")

    with pytest.raises(OptionError, match=r"exceeds maximum .* onnx\.save and give the path"):
        sessions.session(Large())


NEED_PATHS: dict[str, tuple[Callable[[Any], object], bool]] = {
    "model_input": (lambda given: quantize_dynamic(given, "o.onnx"), True),
    "model_output": (lambda given: quantize_dynamic(mlp(), given), False),
    "float_model": (lambda given: octavo.onnx.compare(given, "q.onnx"), False),
    "quantized_model": (lambda given: octavo.onnx.compare("f.onnx", given), False),
    "model": (octavo.onnx.OnnxTarget, True),
    "path": (lambda given: octavo.onnx.from_tensorflow(given, "out"), False),
    "out_folder": (lambda given: octavo.onnx.from_tensorflow("m.pb", given), False),
}


@pytest.mark.parametrize("given", [b"model", io.BytesIO(b"model"), None], ids=range(3))
@pytest.mark.parametrize("name", NEED_PATHS)
def test_other_functions_say_what_they_take(name: str, given: Any) -> None:
    call, takes_protos = NEED_PATHS[name]
    with pytest.raises(OptionError, match=f"{name} is a .*; give a path") as said:
        call(given)
    hints = takes_protos and given is not None
    assert ("onnx.load_model_from_string" in str(said.value)) == hints


def test_the_least_onnxruntime_is_asked_for(tmp_path: Path) -> None:
    for least in ("1.17", ort.__version__, ort.__version__.rpartition(".")[0]):
        sessions.session(written(tmp_path, min_onnxruntime=least))
    path = written(tmp_path, min_onnxruntime="99.1")
    with pytest.raises(ModelError, match=rf"needs ONNX Runtime 99\.1 .* {ort.__version__}"):
        sessions.session(path)


@pytest.fixture(scope="module")
def native_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("native") / "native.onnx"
    quantize_dynamic(mlp(), path, target="native", verify=False)
    return path


def test_native_files_open_with_the_library_and_say_so_without(native_file: Path) -> None:
    session = sessions.session(native_file)
    assert session.run(None, {"x": normal(4, 32)})[0].shape == (4, 32)
    said = sessions.metadata(native_file)
    assert said["octavo.target"] == "native"
    with pytest.raises(Exception, match=r"ai\.octavo"):
        ort.InferenceSession(native_file, providers=["CPUExecutionProvider"])
    assert "octavo.onnx.session(path)" in said["octavo.operators"]
    assert "register_custom_ops_library" in said["octavo.operators"]


@pytest.mark.parametrize("before", [0, 1, 2])
def test_options_may_have_the_library_already(native_file: Path, before: int) -> None:
    """ONNX Runtime takes a domain twice, and then opens no session."""
    options = ort.SessionOptions()
    for _ in range(before):
        options.register_custom_ops_library(sessions.custom_ops_library())
    for _ in range(2):
        session = sessions.session(native_file, sess_options=options)
        assert session.run(None, {"x": normal(4, 32)})[0].shape == (4, 32)
    assert len(ort.InferenceSession(native_file, options).get_outputs()) == 1


@pytest.mark.slow
def test_sessions_keep_no_memory(native_file: Path) -> None:
    """A set of options for each kept 40 KB, which is 80 MB here."""
    code = """
    import gc, sys
    import octavo.onnx
    def rss():
        gc.collect()
        return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmRSS"))
    for i in range(2100):
        octavo.onnx.session(sys.argv[1])
        if i == 99:
            before = rss()
    print(rss() - before)
    """
    assert int(fresh.python(code, native_file).stdout) < 2000 * 2  # KB


def test_the_library_is_beside_the_native_module() -> None:
    library = Path(sessions.custom_ops_library())
    native = Path(str(importlib.import_module("octavo._native").__file__))
    assert library == native.parent / "liboctavo_ort.so" and library.is_file()


def test_a_missing_library_is_named(
    native_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quantize_dynamic(mlp(), tmp_path / "portable.onnx", verify=False)
    monkeypatch.setattr(ort_library, "LIBRARY", "liboctavo_none.so")
    for open_it in (sessions.custom_ops_library, lambda: sessions.session(native_file)):
        with pytest.raises(ModelError, match=r"liboctavo_none\.so is missing"):
            open_it()
    assert "octavo.operators" not in sessions.metadata(tmp_path / "portable.onnx")
    sessions.session(tmp_path / "portable.onnx")  # does without


def test_a_library_that_does_not_load_is_named(
    native_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "liboctavo_ort.so"
    broken.write_bytes(b"not a library")
    monkeypatch.setattr(sessions, "custom_ops_library", lambda: str(broken))
    with pytest.raises(ModelError, match=r"liboctavo_ort\.so"):
        sessions.session(native_file)


def test_paths_that_cannot_be_opened(tmp_path: Path) -> None:
    loop = tmp_path / "loop.onnx"
    loop.symlink_to(loop)
    (tmp_path / "folder").mkdir()
    for path, problem in (
        (tmp_path / "none.onnx", r"none\.onnx does not exist"),
        (tmp_path / "folder", r"is a directory without an \.onnx file"),
        (loop, r"loop\.onnx cannot be read"),
    ):
        with pytest.raises(ModelError, match=problem):
            sessions.session(path)


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


@settings(deadline=None, max_examples=25)
@given(st.dictionaries(st.text(max_size=300), st.text(max_size=300), max_size=5))
def test_metadata_is_what_onnx_reads(
    tmp_path_factory: pytest.TempPathFactory, said: dict[str, str]
) -> None:
    path = tmp_path_factory.mktemp("m") / "model.onnx"
    onnx.save(integer_model(said), path)
    assert sessions.metadata(path) == {p.key: p.value for p in onnx.load(path).metadata_props}
    assert sessions.metadata(path) == said


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=120))
def test_no_bytes_are_more_than_a_model_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("m") / "model.onnx"
    path.write_bytes(content)
    with contextlib.suppress(ModelError):
        sessions.metadata(path)
