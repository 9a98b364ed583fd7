"""Writes a converted model: as one file, or with its weights in a data file beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import onnx_ir as ir

from octavo.errors import ModelError, OutputError
from octavo.files.staging import DATA_FILE, output_error
from octavo.graph.analysis.walk import graphs_of
from octavo.graph.emit.emitter import Names
from octavo.onnx.read.load import Source
from octavo.onnx.read.tensor_store import TensorStore, inline_attributes, to_proto
from octavo.onnx.read.validate import stored_tensors
from octavo.onnx.read.wire import write_model

ONE_FILE_LIMIT = 256 * 2**20  # bytes; a larger result of a model with external data keeps one
PROTOBUF_LIMIT = 1900 * 2**20  # bytes; protobuf ends at 2 GiB


class Place(Protocol):
    """Where a model is written."""

    @property
    def out(self) -> Path:
        """Return the path by which messages name the place."""

    @property
    def model(self) -> Path:
        """Return the path of the model file."""

    @property
    def data(self) -> Path:
        """Return the path of the data file, for a model that needs one."""


def needs_data_file(source: Source, size: int) -> bool:
    """Tell whether a result of `size` bytes is too large for one file."""
    return size > (ONE_FILE_LIMIT if source.data_files else PROTOBUF_LIMIT)


def _name_apart(model: ir.Model) -> None:
    """Rename nodes that share a name in one graph, but the first: ONNX Runtime refuses two.

    Before a conversion a name stands for all nodes that have it, so that they keep it until then.
    """
    names = Names(model)
    for graph in graphs_of(model):
        seen = set[str]()
        for node in graph:
            if node.name and node.name in seen:
                node.name = names.nodes.new(node.name)
            seen.add(node.name or "")


def save(model: ir.Model, place: Place, tensors: TensorStore, metadata: Mapping[str, str]) -> None:
    """Write `model` to `place`, with the data file that `tensors` began or one that it needs.

    The model comes out with the tensors that were written. Raises OSError.
    """
    _name_apart(model)
    inline_attributes(model)
    if tensors.path is None and _bytes(model) > PROTOBUF_LIMIT:
        tensors.spill(place.data)
    for graph in graphs_of(model):
        for name, value in graph.initializers.items():
            if value.const_value is not None:
                value.const_value = tensors.adopt(value.const_value, name)
    tensors.close()
    if place.data.exists() and not place.data.stat().st_size:
        place.data.unlink()
    model.metadata_props.pop(DATA_FILE, None)
    model.metadata_props.update(metadata)
    if place.data.exists():
        model.metadata_props[DATA_FILE] = place.data.name
    # The main graph's initializers go to the file from where they lie; see `wire`.
    stored = [v for v in model.graph.initializers.values() if v.const_value is not None]
    for value in stored:
        del model.graph.initializers[value.name or ""]
    try:
        proto = to_proto(model)
    finally:
        for value in stored:
            model.graph.register_initializer(value)
    with place.model.open("wb") as file:
        write_model(proto, stored, file)


@contextmanager
def os_errors_explained(source: Source, place: Place) -> Iterator[None]:
    """Raise what an OSError during a conversion means.

    Either the input went away (ModelError), or the output failed (OutputError).
    """
    try:
        yield
    except OutputError:
        raise
    except OSError as error:
        files = {str(path.resolve()) for path in source.files}
        if isinstance(error.filename, str) and error.filename in files:
            raise ModelError(
                f"{error.filename} cannot be read any more: {error.strerror}; leave the input in "
                "place while it is converted"
            ) from error
        raise output_error(error, place.out) from error


def _bytes(model: ir.Model) -> int:
    return sum(
        tensor.nbytes
        for _, tensor in stored_tensors(model)
        if tensor.dtype is not ir.DataType.STRING
    )
