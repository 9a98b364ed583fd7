"""Reads a model, and says clearly when it is none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from octavo.errors import ModelError
from octavo.onnx.wire import WireError, skeleton


@dataclass(frozen=True)
class Source:
    """A model to convert. `path` is None where it came as a ModelProto."""

    model: ir.Model
    path: Path | None
    proto: onnx.ModelProto | None
    bytes: int
    external: bool

    @property
    def label(self) -> str:
        """What messages and reports call it."""
        return str(self.path) if self.path is not None else "(ModelProto)"


def load(model_input: str | Path | onnx.ModelProto) -> Source:
    """The model at a path, or a ModelProto, which is not changed.

    Large tensors in external files are mapped when they are needed. Raises ModelError.
    """
    if isinstance(model_input, onnx.ModelProto):
        return _from_proto(model_input, None)
    path = Path(model_input)
    if path.is_dir():
        raise ModelError(f"{path} is a directory; give the .onnx file in it")
    if not path.exists():
        raise ModelError(f"{path} does not exist")
    try:
        proto = skeleton(path)
    except (DecodeError, WireError) as error:
        raise ModelError(
            f"{path} is not an ONNX model, or it is truncated ({path.stat().st_size} bytes): {error}"
        ) from error
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from error
    return _from_proto(proto, path)


def _from_proto(proto: onnx.ModelProto, path: Path | None) -> Source:
    label = str(path) if path is not None else "the ModelProto"
    if not proto.HasField("graph") or not proto.opset_import:
        raise ModelError(
            f"{label} is not an ONNX model: it states no "
            f"{'graph' if not proto.HasField('graph') else 'opset'}"
        )
    try:
        model = ir.serde.deserialize_model(proto)
    except Exception as error:  # noqa: BLE001 - a broken model breaks the reader in many ways
        raise ModelError(f"{label} is not a valid ONNX model: {error}") from error
    if not len(model.graph):
        raise ModelError(f"{label} has no nodes")
    size = proto.ByteSize() if path is None else path.stat().st_size
    external = _external_files(model, path, label)
    size += sum(f.stat().st_size for f in external)
    return Source(model, path, proto if path is None else None, size, bool(external))


def _external_files(model: ir.Model, path: Path | None, label: str) -> set[Path]:
    """The data files that tensors of the model lie in, each checked to be there and long enough.

    The model file itself, into which `skeleton` refers, is not among them.
    """
    own = None if path is None else path.resolve()
    needed: dict[Path, tuple[int, str]] = {}
    for graph in model.graphs():
        for name, value in graph.initializers.items():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor):
                where = _locate(tensor, name, path, label)
                end = (tensor.offset or 0) + (tensor.length or tensor.nbytes)
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
                f"{end}, the file has {where.stat().st_size}"
            )
    return {where for where in needed if where != own}


def _locate(tensor: ir.ExternalTensor, name: str, path: Path | None, label: str) -> Path:
    """Makes the tensor's place absolute. It lies in the model's folder, perhaps behind a link."""
    if path is None:
        raise ModelError(
            f"{label} keeps tensor {name!r} in an external file and has no folder to find it in; "
            "give the path of the .onnx file instead"
        )
    location = Path(tensor.location)
    own = path.resolve()
    if location == own:
        where = own
    elif location.is_absolute() or ".." in location.parts:
        raise ModelError(
            f"{label}: tensor {name!r} claims to lie in {location}, outside the model's folder; "
            "external data must lie beside the model"
        )
    else:
        # Model hubs keep files as links into a store: the link must lie here, not what it names.
        where = (path.parent / location).resolve()
    tensor._location = str(where)  # onnx_ir checks links against base_dir, which stays empty
    tensor._base_dir = ""
    return where
