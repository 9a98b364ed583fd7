"""Reads a model, and says clearly when it is none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from octavo.errors import ModelError, brief
from octavo.files.lookup import refuse_no_path, suggest_file
from octavo.files.protobuf import WireError
from octavo.files.wrong_file import misread
from octavo.onnx.read import map_types
from octavo.onnx.read.validate import check_graphs, check_tensor, check_text, stored_tensors
from octavo.onnx.read.wire import OWN_FILE, skeleton

Origin = Path | onnx.ModelProto
"""What a model is read from."""


@dataclass(frozen=True)
class Source:
    """A model to convert. `path` is None where it came as a ModelProto.

    `bytes` counts the model with its data files, which are beside it or behind links there.
    """

    model: ir.Model
    path: Path | None
    proto: onnx.ModelProto | None
    bytes: int
    data_files: frozenset[Path]

    @property
    def label(self) -> str:
        """Return the model's name in messages and reports."""
        return str(self.path) if self.path is not None else "(ModelProto)"

    @property
    def origin(self) -> Origin:
        """Return what `load` took: another call of it gives the model as it was."""
        if self.path is not None:
            return self.path
        assert self.proto is not None
        return self.proto

    @property
    def files(self) -> frozenset[Path]:
        """Return all files that hold parts of the model."""
        return self.data_files if self.path is None else self.data_files | {self.path}


def load(model_input: str | Path | onnx.ModelProto) -> Source:
    """Load the model at a path, or a ModelProto, which is not changed.

    Large tensors in external files are mapped when they are needed. Raises ModelError.
    """
    if isinstance(model_input, onnx.ModelProto):
        return _from_proto(model_input, None)
    refuse_no_path(model_input, "model_input", model=True)
    path = Path(model_input)
    try:
        if (path / "saved_model.pb").is_file():
            raise ModelError(
                f"{path} is a TensorFlow SavedModel; make an .onnx file of it: "
                f"octavo.onnx.from_tensorflow({str(path)!r}, '.') in Python"
            )
        if path.is_dir():
            raise ModelError(misread(path, ""))
        if not path.exists():
            what = "is a link that leads nowhere" if path.is_symlink() else "does not exist"
            raise ModelError(f"{path} {what}; give the path of an .onnx file.{suggest_file(path)}")
        if not path.is_file():
            raise ModelError(f"{path} is not a regular file; give the path of an .onnx file")
        proto = skeleton(path)
    except (DecodeError, WireError) as error:
        raise ModelError(misread(path, error)) from error
    except OSError as error:
        raise ModelError(
            f"{path} cannot be read: {error.strerror or error}; give a file that you may read"
        ) from error
    if not proto.HasField("graph"):
        raise ModelError(misread(path, "it holds no graph"))
    return _from_proto(proto, path)


def _from_proto(proto: onnx.ModelProto, path: Path | None) -> Source:
    label = str(path) if path is not None else "(ModelProto)"
    if not proto.HasField("graph"):
        raise ModelError(f"{label} is not an ONNX model: it holds no graph; export it again")
    check_text(proto, label)
    if not any(entry.domain in ("", "ai.onnx") for entry in proto.opset_import):
        raise ModelError(
            f"{label} does not say which opset (version of the standard operators) it uses; "
            "export it again"
        )
    _refuse_unknown_parts(proto, label)
    read, types = _without_maps(proto, path)
    try:
        model = ir.serde.deserialize_model(read)
    except Exception as error:  # a broken model breaks the reader in many ways
        raise ModelError(
            f"{label} is not a valid ONNX model: {_first_cause(error)}; export the model again"
        ) from error
    if not len(model.graph):
        raise ModelError(
            f"{label} has no nodes, and a model has one at least; export the model again"
        )
    map_types.attach_types(model, types)
    check_graphs(model, label)
    size = proto.ByteSize() if path is None else path.stat().st_size
    data_files = _data_files(model, path, label)
    size += sum(f.stat().st_size for f in data_files)
    return Source(model, path, proto if path is None else None, size, data_files)


def _without_maps(
    proto: onnx.ModelProto, path: Path | None
) -> tuple[onnx.ModelProto, map_types.Types]:
    """Return what onnx_ir can read, and the types that it cannot; a caller's model is kept."""
    if path is None and map_types.have_maps(proto):
        given, proto = proto, onnx.ModelProto()
        proto.CopyFrom(given)
    return proto, map_types.detach_types(proto)


def _refuse_unknown_parts(proto: onnx.ModelProto, label: str) -> None:
    """Raise ModelError for parts that onnx_ir passes over without a word: sparse initializers."""
    if proto.graph.sparse_initializer:
        name = proto.graph.sparse_initializer[0].values.name
        raise ModelError(
            f"{label} holds the sparse initializer {name!r}; sparse weights are not supported: "
            "export the model with dense ones"
        )


def _first_cause(error: BaseException) -> str:
    """Return the text of the first cause, which onnx_ir wraps in messages that repeat the model."""
    while isinstance(error, (ir.serde.SerdeError, TypeError)):
        deeper = error.__cause__ or error.__context__
        if deeper is None:
            break
        error = deeper
    return brief(error)


def _data_files(model: ir.Model, path: Path | None, label: str) -> frozenset[Path]:
    """Return the data files beside the model, each checked to be there and long enough.

    Makes the places of the tensors absolute: model hubs keep files as links into a store, which
    onnx_ir refuses under a base_dir. The link must lie beside the model, not what it names.
    The model file itself, into which `skeleton` refers, is not among them.
    """
    needed: dict[Path, tuple[int, str]] = {}
    places: dict[str, tuple[Path, str]] = {}
    for name, tensor in stored_tensors(model):
        check_tensor(tensor, name, label)
        if isinstance(tensor, ir.ExternalTensor):
            location = str(tensor.location)
            if location not in places:
                where = _data_path(location, name, path, label)
                places[location] = where, str(where.resolve())
            where, tensor._location = places[location]
            tensor._base_dir = ""
            end = (tensor.offset or 0) + tensor.nbytes
            needed[where] = max(needed.get(where, (0, "")), (end, name))
    for where, (end, name) in needed.items():
        if not where.is_file():
            raise ModelError(
                f"{label}: external data file {where} of tensor {name!r} is missing; put it beside "
                "the model under that name"
            )
        if where.stat().st_size < end:
            raise ModelError(
                f"{label}: external data file {where} is truncated: tensor {name!r} ends at byte "
                f"{end}, the file has {where.stat().st_size}; get the file again"
            )
    return frozenset(where for where in needed if where != path)


def _data_path(location: str, name: str, path: Path | None, label: str) -> Path:
    """Return the file that tensor `name` lies in: in the model's folder, perhaps behind a link."""
    if path is None:
        raise ModelError(
            f"{label} keeps tensor {name!r} in an external file and has no folder to find it in; "
            "give the path of the .onnx file instead"
        )
    if location == OWN_FILE:
        return path
    relative = Path(location)
    if not relative.name or relative.is_absolute() or ".." in relative.parts:
        raise ModelError(
            f"{label}: tensor {name!r} claims to lie in {location!r}, outside the model's folder; "
            "external data must lie beside the model"
        )
    return path.parent / relative
