"""Makes the int8 weights of a portable file uint8, for processors on which ONNX Runtime saturates.

    w int8, zero point z        w + 128 uint8, zero point z + 128        the same products, exact

`session.x64quantprecision` has ONNX Runtime do that, but it fails where two products read one
tensor, leaves bodies of If, Loop and Scan as they are, and spoils DequantizeLinear of blocks.
Serving has no onnx: this reads and writes protobuf.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from octavo.files.protobuf import BYTES, fields, head, read_varint, varint

DATA_FOLDER = "session.model_external_initializers_file_folder_path"
"""The entry of a session's options that tells where data files of a model in memory are."""

# Numbers of fields in onnx.proto.
_GRAPH = 7  # of a model
_NODE, _INITIALIZER, _OUTPUT = 1, 5, 12  # of a graph
_INPUT, _NODE_OUTPUT, _OP, _ATTRIBUTE = 1, 2, 4, 5  # of a node
_NODE_NAME = 3 << 3 | BYTES  # what the field begins with
_BODY, _BODIES = 6, 11  # of an attribute
_DIMS, _DTYPE, _INTS, _NAME, _RAW, _EXTERNAL = 1, 2, 5, 8, 9, 13  # of a tensor
_UINT8, _INT8 = 2, 3
_PLUS_128 = bytes(n ^ 0x80 for n in range(256))
_MOST = 2**31 - 2**20  # bytes that a message may have

_WEIGHTS: dict[bytes, tuple[tuple[int, int], ...]] = {
    b"MatMulInteger": ((1, 3),),
    b"MatMulIntegerToFloat": ((1, 5),),
    b"DynamicQuantizeMatMul": ((1, 3),),
    b"DynamicQuantizeLSTM": ((1, 9), (2, 11)),
    b"DequantizeLinear": ((0, 2),),
}
"""By operator, the inputs that are a weight and its zero point."""
_MOVES = frozenset([b"Transpose", b"Identity", b"Reshape", b"Squeeze", b"Unsqueeze"])


@dataclass
class _Tensor:
    """`parts` has the bodies of its fields, by number, in their order."""

    parts: dict[int, list[memoryview]]
    dims: bytes  # whole fields
    dtype: int


@dataclass
class _Graph:
    """`rest` are whole fields but for nodes and initializers; `stored` are those by name, `moved`
    nodes that move what they read, by their output."""

    parent: _Graph | None
    rest: list[memoryview] = field(default_factory=list)
    nodes: list[_Node] = field(default_factory=list)
    stored: dict[bytes, tuple[memoryview, _Tensor]] = field(default_factory=dict)
    moved: dict[bytes, _Node] = field(default_factory=dict)
    outputs: list[bytes] = field(default_factory=list)
    new: list[bytes] = field(default_factory=list)

    def owner(self, name: bytes) -> _Graph | None:
        """Return the nearest graph, from this one outwards, with the initializer `name`, if any."""
        graph: _Graph | None = self
        while graph is not None and name not in graph.stored:
            graph = graph.parent
        return graph

    def holds_int8(self, name: bytes) -> bool:
        """Tell whether that is an initializer of int8, perhaps moved."""
        owner, mover = self.owner(name), self.mover(name)
        if owner is None and mover is not None:
            return mover[0].holds_int8(mover[1].inputs[0])
        return owner is not None and owner.stored[name][1].dtype == _INT8

    def mover(self, name: bytes) -> tuple[_Graph, _Node] | None:
        """Find the node of `_MOVES` with the output `name`, and its graph, if there is one."""
        graph: _Graph | None = self
        while graph is not None and name not in graph.moved:
            graph = graph.parent
        return None if graph is None else (graph, graph.moved[name])


@dataclass
class _Node:
    """`attributes` with bodies are lists of whole fields and graphs with their field's number."""

    op: bytes
    inputs: list[bytes]
    outputs: list[bytes]
    rest: list[memoryview]
    attributes: list[list[memoryview | tuple[int, _Graph]]]


def with_exact_products(model: bytes, folder: Path | None) -> bytes | None:
    """Return the serialized `model` with uint8 weights; None where ONNX Runtime can make them.

    `folder` has its data files: weights that are there come into the bytes. None too where it
    would have more than 2 GB, or a data file is missing. Raises WireError for what is no model.
    """
    data = memoryview(model)
    top = list(fields(data, 0, len(data)))
    whole = [data[body:end] for tag, _, body, end in top if tag >> 3 == _GRAPH]
    graph = _read_graph(whole[-1] if whole else memoryview(b""), None)
    graphs = list(_all_graphs(graph))
    if not _is_needed(graphs):
        return None
    try:
        _turn(graph, graphs, folder)
    except OSError:
        return None
    written = _write_graph(graph)
    others = [bytes(data[start:end]) for tag, start, _, end in top if tag >> 3 != _GRAPH]
    size = len(written) + sum(map(len, others))
    return b"".join([*others, head(_GRAPH, len(written)), written]) if size < _MOST else None


def _read_graph(data: memoryview, parent: _Graph | None) -> _Graph:
    graph = _Graph(parent)
    for tag, start, body, end in fields(data, 0, len(data)):
        number = tag >> 3
        if number == _NODE:
            node = _read_node(data[body:end], graph)
            graph.nodes.append(node)
            if node.op in _MOVES and node.inputs and node.outputs:
                graph.moved[node.outputs[0]] = node
        elif number == _INITIALIZER:
            tensor = _read_tensor(data[body:end])
            graph.stored[bytes(tensor.parts.get(_NAME, [b""])[-1])] = data[start:end], tensor
        else:
            graph.rest.append(data[start:end])
            if number == _OUTPUT:
                name = [data[b:e] for t, _, b, e in fields(data, body, end) if t >> 3 == 1]
                graph.outputs += map(bytes, name)
    return graph


def _read_node(data: memoryview, graph: _Graph) -> _Node:
    node = _Node(b"", [], [], [], [])
    for tag, start, body, end in fields(data, 0, len(data)):
        number, value = tag >> 3, data[body:end]
        if number == _INPUT:
            node.inputs.append(bytes(value))
            continue
        if number == _ATTRIBUTE:
            parts: list[memoryview | tuple[int, _Graph]] = [
                (t >> 3, _read_graph(data[b:e], graph))
                if t >> 3 in (_BODY, _BODIES) and t & 7 == BYTES
                else data[s:e]
                for t, s, b, e in fields(data, body, end)
            ]
            if any(isinstance(part, tuple) for part in parts):
                node.attributes.append(parts)
                continue
        elif number == _NODE_OUTPUT:
            node.outputs.append(bytes(value))
            continue
        elif number == _OP:
            node.op = bytes(value)
        node.rest.append(data[start:end])
    return node


def _read_tensor(data: memoryview) -> _Tensor:
    tensor = _Tensor({}, b"", 0)
    for tag, start, body, end in fields(data, 0, len(data)):
        number = tag >> 3
        tensor.parts.setdefault(number, []).append(data[body:end])
        if number == _DIMS:
            tensor.dims += bytes(data[start:end])
        elif number == _DTYPE:
            tensor.dtype, _ = read_varint(data, body, end)
    return tensor


def _all_graphs(graph: _Graph) -> Iterator[_Graph]:
    yield graph
    for node in graph.nodes:
        for parts in node.attributes:
            for part in parts:
                if isinstance(part, tuple):
                    yield from _all_graphs(part[1])


def _places(graphs: list[_Graph]) -> Iterator[tuple[_Graph, _Node, int, int]]:
    """Nodes that read an int8 weight, with the inputs that are it and its zero point."""
    for graph in graphs:
        for node in graph.nodes:
            for weight, zero in _WEIGHTS.get(node.op, ()):
                w, z = _input(node, weight), _input(node, zero)
                if graph.holds_int8(w) and (z == b"" or graph.holds_int8(z)):
                    yield graph, node, weight, zero


def _input(node: _Node, index: int) -> bytes:
    return node.inputs[index] if index < len(node.inputs) else b""


def _is_needed(graphs: list[_Graph]) -> bool:
    """Tell whether the products of a model need to be rewritten.

    Products need that where one is in a body, two read one weight or one zero point, or a zero
    point is left out: ONNX Runtime adds a scalar, which DequantizeLinear of blocks does not take.
    """
    readers = Counter(name for graph in graphs for node in graph.nodes for name in node.inputs)
    read: Counter[bytes] = Counter()
    for graph, node, weight, zero in _places(graphs):
        if graph.parent is not None or not _input(node, zero):
            return True
        times = max(readers[node.outputs[0]], 1) if node.op == b"DequantizeLinear" else 1
        read.update({_input(node, weight): times, _input(node, zero): times})
    del read[b""]
    return any(times > 1 for times in read.values())


def _turn(root: _Graph, graphs: list[_Graph], folder: Path | None) -> None:
    taken = {n for g in graphs for n in (*g.stored, *(o for node in g.nodes for o in node.outputs))}
    made: dict[tuple[int, bytes], bytes] = {}

    def new(base: bytes) -> bytes:
        name = base + b"_unsigned"
        while name in taken:
            name += b"_"
        taken.add(name)
        return name

    def unsigned(graph: _Graph, name: bytes) -> bytes:
        owner, mover = graph.owner(name), graph.mover(name)
        place = owner or (mover[0] if mover else graph)
        key = id(place), name
        if key in made:
            return made[key]
        made[key] = new(name)
        if owner is not None:
            tensor = owner.stored[name][1]
            owner.new.append(_uint8(made[key], tensor.dims, _numbers(tensor, folder)))
        elif mover is not None:
            moved = unsigned(place, mover[1].inputs[0]), *mover[1].inputs[1:]
            rest = [part for part in mover[1].rest if part[0] != _NODE_NAME]  # it must be the only
            place.nodes.append(replace(mover[1], inputs=[*moved], outputs=[made[key]], rest=rest))
        return made[key]

    def middle(graph: _Graph, scale: bytes) -> bytes:
        """Add a zero point of 128 for each scale, where there was none, and return its name.

        The tensor is in the main graph, where all graphs see it.
        """
        owner = graph.owner(scale) if scale else None
        tensor = None if owner is None else owner.stored[scale][1]
        dims = b"" if tensor is None else tensor.dims
        count = 1
        for _, _, body, end in fields(dims, 0, len(dims)):
            at = body
            while at < end:
                size, at = read_varint(dims, at, end)
                count *= size
        name = new(b"octavo_128")
        root.new.append(_uint8(name, dims, bytes(count)))
        return name

    for graph, node, weight, zero in list(_places(graphs)):
        node.inputs[weight] = unsigned(graph, node.inputs[weight])
        if _input(node, zero):
            node.inputs[zero] = unsigned(graph, node.inputs[zero])
        else:
            node.inputs += [b""] * (zero + 1 - len(node.inputs))
            scale = node.inputs[1] if node.op == b"DequantizeLinear" else b""
            node.inputs[zero] = middle(graph, scale)
    read = {name for g in graphs for name in (*g.outputs, *(i for n in g.nodes for i in n.inputs))}
    for graph in graphs:
        for name in [n for n in graph.stored if (id(graph), n) in made and n not in read]:
            del graph.stored[name]


def _numbers(tensor: _Tensor, folder: Path | None) -> bytes:
    """Return the int8 numbers of the tensor as bytes."""
    if _EXTERNAL in tensor.parts:
        said = {}
        for entry in tensor.parts[_EXTERNAL]:
            found = fields(entry, 0, len(entry))
            pair = {tag >> 3: bytes(entry[body:end]).decode() for tag, _, body, end in found}
            said[pair.get(1, "")] = pair.get(2, "")
        if folder is None:
            raise FileNotFoundError(said.get("location"))
        length = int(said["length"]) if "length" in said else -1
        offset = int(said.get("offset", 0))
        with (folder / said["location"]).open("rb") as file:
            file.seek(offset)
            return file.read(length)
    if _RAW in tensor.parts:
        return bytes(tensor.parts[_RAW][-1])
    numbers = bytearray()
    for part in tensor.parts.get(_INTS, ()):  # packed, or one each
        at = 0
        while at < len(part):
            number, at = read_varint(part, at, len(part))
            numbers.append(number & 0xFF)
    return bytes(numbers)


def _uint8(name: bytes, dims: bytes, numbers: bytes) -> bytes:
    raw = numbers.translate(_PLUS_128)
    dtype = varint(_DTYPE << 3) + varint(_UINT8)
    return dims + dtype + head(_NAME, len(name)) + name + head(_RAW, len(raw)) + raw


def _write_graph(graph: _Graph) -> bytes:
    parts: list[bytes | memoryview] = []
    for node in graph.nodes:
        written = _write_node(node)
        parts += [head(_NODE, len(written)), written]
    parts += [whole for whole, _ in graph.stored.values()]
    for tensor in graph.new:
        parts += [head(_INITIALIZER, len(tensor)), tensor]
    return b"".join([*parts, *graph.rest])


def _write_node(node: _Node) -> bytes:
    parts: list[bytes | memoryview] = []
    for number, names in ((_INPUT, node.inputs), (_NODE_OUTPUT, node.outputs)):
        for name in names:
            parts += [head(number, len(name)), name]
    for attribute in node.attributes:
        inner: list[bytes | memoryview] = []
        for part in attribute:
            if isinstance(part, tuple):
                body = _write_graph(part[1])
                inner += [head(part[0], len(body)), body]
            else:
                inner.append(part)
        whole = b"".join(inner)
        parts += [head(_ATTRIBUTE, len(whole)), whole]
    return b"".join([*parts, *node.rest])
