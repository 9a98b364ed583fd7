"""`octavo::block`: a block of a compiled model as one operator over its inputs and its weights.

    octavo::block(inputs, weights, "5f3c...")    what the block's program computes, in order

The last argument names a description of the block: its steps, and which weights those read. It is a
hash of all that, holds no weights, and is the same for all blocks of one structure.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from octavo.core.linear import Linear as Kernel
from octavo.core.live_buffers import Read
from octavo.torch import ops
from octavo.torch.blocks.emit.emission import Weights
from octavo.torch.blocks.nodes import Graph, Node, UnknownStep
from octavo.torch.blocks.plan.compiled import Compiled
from octavo.torch.blocks.plan.plans import Plan
from octavo.torch.blocks.trace.reading import Folded, evaluated, names_read
from octavo.torch.layers.linear import kernel


# docs/notes/torch.md: "A compiled block is one operator over its weights"
@dataclass
class Description:
    """What a block computes, whose weights are given by each call."""

    compiled: Compiled
    block: str
    """What the block is called in messages."""
    linears: dict[str, tuple[int, int, int, str]] = field(default_factory=dict)
    """Outputs, inputs, group and format of each linear layer, by name."""
    weights: dict[str, Read] = field(default_factory=dict)
    """The names of what it reads, in order, and how."""
    kinds: list[tuple[torch.dtype, torch.Size]] = field(default_factory=list)
    """The dtype and shape of each of them."""
    key: str = ""

    def __post_init__(self) -> None:
        roots = [value for value in self.compiled.outputs if isinstance(value, Node)]
        roots = [node for node in dict.fromkeys(roots) if node.op != "input"]
        self.shapes = [(self.compiled.sizes.function(n.shape), n.dtype) for n in roots]
        self._inputs = [(node.dtype, len(node.shape)) for node in self.compiled.graph.inputs]

    def check_inputs(self, inputs: Sequence[Tensor]) -> None:
        """Raise TypeError or ValueError for inputs that the program is not for."""
        for i, ((dtype, rank), given) in enumerate(zip(self._inputs, inputs, strict=False)):
            if (given.dtype, given.dim()) != (dtype, rank):
                said = f"{rank} axes of {dtype}, not {given.dim()} of {given.dtype}"
                raise TypeError(f"{self.block}: input {i} needs {said}")
        if len(inputs) != len(self._inputs):
            needed = f"{len(self._inputs)} inputs, not {len(inputs)}"
            raise ValueError(f"{self.block}: needs {needed}")
        if not self.compiled.sizes.fit(tuple(size for t in inputs for size in t.shape)):
            shapes = ", ".join(str(list(t.shape)) for t in inputs)
            raise ValueError(f"{self.block}: inputs of {shapes} are not what it was traced for")

    def check_weights(self, weights: Sequence[Tensor]) -> None:
        """Raise ValueError for weights of another model."""
        if len(weights) != len(self.kinds):
            needed = f"{len(self.kinds)} weights, not {len(weights)}"
            raise ValueError(f"{self.block}: needs {needed}")
        for name, (dtype, shape), given in zip(self.weights, self.kinds, weights, strict=True):
            if (given.dtype, given.shape) != (dtype, shape):
                said = f"{list(shape)} of {dtype}, not {list(given.shape)} of {given.dtype}"
                raise ValueError(f"{self.block}: {name} needs shape {said}")


_descriptions: dict[str, Description] = {}


def describe(layer: nn.Module, compiled: Compiled, name: str) -> Description:
    """Describe the block `layer` as `compiled`, and make that known to the operator."""
    found = Description(compiled, name)
    nodes = Graph([], compiled.graph.outputs).nodes()
    for node in nodes:
        how = node.attributes
        for linear in (*how.get("layers", ()), *([how["layer"]] if "layer" in how else ())):
            _add_linear(found, linear, layer.get_submodule(linear))
        if node.op == "constant":
            whole = isinstance(node.args[0], str)
            for weight in names_read(node):
                read = Read.LIVE if whole else Read.COPIED
                found.weights[weight] = max(found.weights.get(weight, read), read)
    if not found.weights:
        raise UnknownStep("it has no weights")
    held = [operator.attrgetter(name)(layer) for name in found.weights]
    found.kinds = [(tensor.dtype, tensor.shape) for tensor in held]
    found.key = _hash(found, nodes)
    return _descriptions.setdefault(found.key, found)


def _add_linear(to: Description, name: str, module: Any) -> None:
    to.linears[name] = (*module.sizes, module.group, module.format)
    for part in ("packed", "scale", "zero_point", "bias"):
        if module._buffers.get(part) is not None:
            live = part in ("scale", "bias") and Kernel.reads_live(module.out_features)
            read = Read.SUMMED if part == "packed" else Read.LIVE if live else Read.COPIED
            to.weights[f"{name}.{part}"] = read


def _hash(of: Description, nodes: Sequence[Node]) -> str:
    """Return a hash of what a block computes and of the names of its weights.

    It is the same in every process.
    """
    places = {id(node): i for i, node in enumerate(nodes)}

    def text(value: Any) -> str:
        if isinstance(value, Node):
            return f"%{places[id(value)]}" if id(value) in places else steps([value])
        if isinstance(value, Folded):
            return text((str(value.target), value.args, value.kwargs))
        if isinstance(value, (tuple, list)):
            return f"({', '.join(map(text, value))})"
        if isinstance(value, dict):
            return text(sorted(value.items()))
        return f"{type(value).__name__} {value}"

    def steps(of: Sequence[Node]) -> str:
        return "\n".join(text((n.op, n.args, n.shape, n.dtype, n.attributes)) for n in of)

    sizes = of.compiled.sizes
    known = (sizes.code, sizes.inputs, of.linears, list(of.weights.items()), of.kinds)
    all_of = steps(nodes) + text((*known, of.compiled.outputs, of.block))
    return hashlib.sha256(all_of.encode()).hexdigest()[:24]


class _Given:
    """Weights that a call of the operator brought, as a plan takes those of a block."""

    def __init__(self, of: Description, weights: Sequence[Tensor]) -> None:
        self._sizes = of.linears
        self._tensors = dict(zip(of.weights, weights, strict=True))
        self.weights = Weights(self._linear, self._constant)
        self.layers: list[Any] = []
        """What a program over them needs as long as it lives."""

    def _linear(self, name: str) -> Any:
        found = [
            self._tensors.get(f"{name}.{p}") for p in ("packed", "scale", "zero_point", "bias")
        ]
        packed, scale, zero_point, bias = found
        assert packed is not None
        assert scale is not None
        n, k, group, held = self._sizes[name]
        made: Any = kernel(packed, scale, zero_point, bias, n, k, group, "none", held)
        self.layers.append(made)
        return made.core.native

    def _constant(self, node: Node) -> Tensor:
        with torch.no_grad():
            return evaluated(node, self._tensors.__getitem__).detach().contiguous()


class _Bound:
    """A description's program over some weights, and what tells when they change."""

    def __init__(self, of: Description, weights: tuple[Tensor, ...]) -> None:
        reads = [
            Read.COPIED if read is Read.LIVE and not weight.is_contiguous() else read
            for read, weight in zip(of.weights.values(), weights, strict=True)
        ]
        # Before the program: what another thread writes meanwhile is seen in the next call.
        self.loads, self.sources = ops.loads(), ops.sources(weights, reads)
        given = _Given(of, weights)
        self._layers = given.layers  # and nothing of what has the tensors themselves
        self.run = Plan(of.compiled, given, of.block).made

    def current(self, weights: tuple[Tensor, ...]) -> bool:
        return self.loads == ops.loads() and bool(self.sources.current_of(weights))


# By the first weight, which may live no longer for being here; then by the description.
_bound: Any = WeakTensorKeyDictionary()


def _run(inputs: Sequence[Tensor], weights: Sequence[Tensor], block: str) -> list[Tensor]:
    described, given = _description(block), tuple(weights)
    described.check_inputs(inputs)
    known = _bound.setdefault(given[0], {}) if given else {}
    found = known.get(block)
    if found is None or not found.current(given):
        described.check_weights(given)
        found = known[block] = _Bound(described, given)
    return [t.contiguous() for t in found.run(tuple(inputs))]


def _fake(inputs: Sequence[Tensor], weights: Sequence[Tensor], block: str) -> list[Tensor]:
    found = _description(block)
    flat = [size for t in inputs for size in t.shape]
    for size in flat:
        # What is traced of an axis of two or more is true of no other.
        torch._check(not isinstance(size, torch.SymInt) or bool(size > 1))
    torch._check(found.compiled.sizes.ask(flat), lambda: f"{found.block}: other sizes than traced")
    return [weights[0].new_empty(shape(flat), dtype=dtype) for shape, dtype in found.shapes]


def _description(key: str) -> Description:
    found = _descriptions.get(key)
    if found is None:
        raise RuntimeError(
            f"octavo::block: {key} is no block of a model that was compiled in this process; "
            "compile the model here, or export it"
        )
    return found


# By hand: what `torch.library.custom_op` puts around an operator asks something of each of the
# weights, which takes as long as the layers of a small block. It is only called where no gradient
# is asked for.
_library = torch.library.Library("octavo", "FRAGMENT")
_library.define(
    "block(Tensor[] inputs, Tensor[] weights, str block) -> Tensor[]",
    tags=(torch.Tag.pt2_compliant_tag,),
)
_library.impl("block", _run, "CPU")
torch.library.register_fake("octavo::block", _fake, lib=_library)
block = torch.ops.octavo.block.default
