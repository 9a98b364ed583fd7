"""Opens a quantized file the way it needs. Serving needs numpy and onnxruntime, nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from io import BytesIO, TextIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from octavo.core.cpu import release, saturates
from octavo.core.ort_library import custom_ops_library
from octavo.errors import ModelError, OptionError, brief
from octavo.files.exact_products import DATA_FOLDER, with_exact_products
from octavo.files.metadata import metadata, metadata_of

if TYPE_CHECKING:
    import onnx
    import onnxruntime as ort

S = TypeVar("S")
_PRECISION = "session.x64quantprecision"
UNKNOWN_OPERATOR = (
    "If the operator is of another library, name it: sess_options with which it is registered, or "
    "its path (custom_ops, --custom-ops FILE)"
)
_DATA_FILE = "If its weights are in a file of their own, that file belongs in the same folder"
_DATA_FOLDER = (
    "If its weights are in a file of their own, give the model's path, or sess_options with the "
    f"entry {DATA_FOLDER}"
)


def session(
    path: str | os.PathLike[str] | bytes | BinaryIO | onnx.ModelProto,
    providers: Sequence[Any] | None = None,
    sess_options: ort.SessionOptions | None = None,
) -> ort.InferenceSession:
    """Open an `onnxruntime.InferenceSession` on the file at `path`, by default on the CPU.

    The model may be in memory instead, below 2 GB: as bytes, as a file that is open or an
    `io.BytesIO`, or as an onnx.ModelProto. Of what it has in files of their own `sess_options` have
    to tell the folder (`session.model_external_initializers_file_folder_path`).

    A file made for `cpu="vnni"` gives wrong numbers on x86 processors without VNNI, where ONNX
    Runtime's products of int8 and uint8 saturate; there the session is opened with
    `session.x64quantprecision=1`, which makes them exact and slower. ONNX Runtime cannot copy
    session options, so that one entry is added to `sess_options`; an entry that is already there
    is left as it is. For a file of target native Octavo's operators are registered with
    `sess_options`, once.

    Raises ModelError for what is not a model, needs a newer ONNX Runtime or cannot be opened, and
    OptionError for what is neither a path nor a model.
    """
    import onnxruntime as ort

    return open_as(ort.InferenceSession, path, providers, sess_options)


def open_as(
    kind: type[S],
    path: str | os.PathLike[str] | bytes | BinaryIO | onnx.ModelProto,
    providers: Sequence[Any] | None = None,
    sess_options: ort.SessionOptions | None = None,
) -> S:
    """Open a model as `session` does, as a `kind` of onnxruntime.InferenceSession."""
    import onnxruntime as ort
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    make: Any = kind
    given = _path_or_bytes(path)
    said = metadata(given) if isinstance(given, str) else metadata_of(given)
    name = given if isinstance(given, str) else "the model"
    _refuse_misfit(name, said, ort.__version__)
    options = ort.SessionOptions() if sess_options is None else sess_options
    folder = None
    exact = said.get("octavo.cpu") == "vnni" and _saturates()
    if exact:
        _add_entry(options, _PRECISION, "1")
        if options.get_session_config_entry(_PRECISION) == "1":
            given, folder = _exact(given)
    if said.get("octavo.target") == "native":
        if sess_options is None and folder is None:
            options = _with_operators(custom_ops_library(), exact)
        else:
            register(options)
    refusals = tuple(
        e for e in vars(state).values() if isinstance(e, type) and issubclass(e, Exception)
    )
    try:
        with _data_in(folder, options):
            opened: S = make(given, options, providers=list(providers or ["CPUExecutionProvider"]))
        return opened
    except refusals as error:
        data_file = _DATA_FILE if isinstance(given, str) else _DATA_FOLDER
        raise ModelError(
            f"{name}: ONNX Runtime {ort.__version__} cannot open it: {error}. "
            f"{UNKNOWN_OPERATOR if _is_unknown_operator(error) else data_file}"
        ) from error


@cache
def _with_operators(library: str, exact: bool) -> ort.SessionOptions:
    """Options for all files of target native that come without, with the operators of `library`.

    What is registered with one set of options stays until the process ends, as ONNX Runtime does
    not say when a session has let go of it: a set for each session would take 40 KB each.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    if exact:
        _add_entry(options, _PRECISION, "1")
    register(options)
    return options


def _exact(given: str | bytes) -> tuple[str | bytes, str | None]:
    """Return a model with exact products to open in place of `given`, and its data files' folder.

    Such a model is needed where ONNX Runtime cannot make the products exact itself.
    """
    if isinstance(given, bytes):
        return with_exact_products(given, None) or given, None
    path = Path(given).absolute()
    turned = with_exact_products(path.read_bytes(), path.parent)
    return (given, None) if turned is None else (turned, str(path.parent))


@contextmanager
def _data_in(folder: str | None, options: ort.SessionOptions) -> Iterator[None]:
    """Has a model that is opened from bytes find its data files."""
    if folder is None:
        yield
        return
    try:
        before = options.get_session_config_entry(DATA_FOLDER)
    except RuntimeError:
        before = ""
    options.add_session_config_entry(DATA_FOLDER, folder)
    try:
        yield
    finally:
        options.add_session_config_entry(DATA_FOLDER, before)


def _path_or_bytes(model: Any) -> str | bytes:
    """onnx is asked for nothing: whoever has a ModelProto has it."""
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model)
    if isinstance(model, (bytes, bytearray, memoryview)):
        return bytes(model)
    if isinstance(model, BytesIO):
        return model.getvalue()  # written a moment ago, it is at its end
    if hasattr(model, "SerializeToString"):
        try:
            return bytes(model.SerializeToString())
        except Exception as error:  # protobuf's own, of 2 GB and more
            raise OptionError(
                f"the {type(model).__name__} has no bytes ({brief(error)}); save it with "
                "onnx.save and give the path"
            ) from error
    read, what = None, f"of type {type(model).__name__}"
    if isinstance(model, TextIOBase):
        what = "a file open as text"
    elif hasattr(model, "read"):
        try:
            read = model.read()
        except (OSError, ValueError) as error:  # it is closed, or open to write
            what = f"a file that cannot be read ({brief(error)})"
    if not isinstance(read, bytes):
        raise OptionError(
            f"the model to open is {what}; give the path of an .onnx file, its bytes, a file that "
            'open(path, "rb") returns, or an onnx.ModelProto'
        )
    return read


def _is_unknown_operator(error: BaseException) -> bool:
    """ONNX Runtime has no class of its own for it."""
    return "is not a registered function/op" in str(error)


def session_options(sess_options: ort.SessionOptions | None = None) -> ort.SessionOptions:
    """Options with which any session runs Octavo's files, of both targets.

    For libraries that open sessions themselves, such as optimum and sentence-transformers: pass
    them on (`session_options=`). They have Octavo's operators, and products of int8 that are exact
    on processors without VNNI, as `session` sets it. There ONNX Runtime refuses files of which two
    products read one weight, which `session` opens: make such a file with `cpu="any"`.
    `sess_options` are changed and returned.
    """
    import onnxruntime as ort

    options = ort.SessionOptions() if sess_options is None else sess_options
    if _saturates():
        _add_entry(options, _PRECISION, "1")
    register(options)
    return options


def register(options: ort.SessionOptions) -> None:
    """Register Octavo's operators with `options`; doing so again changes nothing."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    try:
        options.register_custom_ops_library(custom_ops_library())
    except (state.Fail, state.InvalidArgument) as error:
        raise ModelError(str(error)) from error


def _refuse_misfit(name: str, said: Mapping[str, str], installed: str) -> None:
    needed = said.get("octavo.min_onnxruntime", "")
    if needed and release(installed) < release(needed):
        raise ModelError(
            f"{name} needs ONNX Runtime {needed} or newer; installed is {installed}. Run: "
            f"pip install 'onnxruntime>={needed}'"
        )


def _saturates() -> bool:
    from octavo.core.kernels import cpu_features

    return saturates(cpu_features())


def _add_entry(options: ort.SessionOptions, key: str, value: str) -> None:
    try:
        options.get_session_config_entry(key)
    except RuntimeError:  # it is not set
        options.add_session_config_entry(key, value)
