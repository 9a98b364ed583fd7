"""A plan: how one block runs calls of one form, as a program over its own weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import sympy
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from octavo.core.live_buffers import Read
from octavo.core.program import Program
from octavo.torch import ops
from octavo.torch.blocks.emit.emission import DTYPES, Emission, Weights
from octavo.torch.blocks.nodes import Graph, Node, UnknownStep
from octavo.torch.blocks.plan.compiled import Compiled
from octavo.torch.blocks.trace.reading import evaluated, names_read
from octavo.torch.layers.linear import QuantizedLinear


class Held:
    """The weights of a block, as programs read them, and what tells when they change."""

    def __init__(self, block: nn.Module) -> None:
        self._block = block
        self._names: set[str] = set()
        self.sources: list[Any] = []
        """Of guards: `Sources`, and the dict or tuple of tensors."""
        self._read: dict[str, Tensor] = {}
        self.weights = Weights(self._linear, self._constant)

    @property
    def trainable(self) -> bool:
        """Tell whether a tensor that programs read asks for gradients now."""
        return any(tensor.requires_grad for tensor in self._read.values())

    def _linear(self, name: str) -> Any:
        module = self._block.get_submodule(name)
        kind: Any = type(module)
        if not isinstance(module, QuantizedLinear) or kind._kernel is not QuantizedLinear._kernel:
            raise UnknownStep(f"{name} is a {kind.__name__}")
        ready = module._ready("none")
        if name not in self._names:
            self._names.add(name)
            self.sources += [module._bound[("none",)][1], module._buffers]
        return ready.core.native

    def _constant(self, node: Node) -> Tensor:
        names = names_read(node)
        tensors = tuple(self._tensor(name) for name in names)
        with torch.no_grad():
            made = evaluated(node, self._tensor).detach()
        if any(not t.is_cpu or not t.is_contiguous() for t in (*tensors, made)):
            made = made.contiguous()
        if any(not t.is_cpu or not t.is_contiguous() for t in tensors):
            raise UnknownStep(f"{', '.join(names)}: not in the processor's memory, side by side")
        self._read.update(zip(names, tensors, strict=True))
        lives = len(tensors) == 1 and made.data_ptr() == tensors[0].data_ptr()
        read = Read.LIVE if lives and made.shape == tensors[0].shape else Read.COPIED
        key = f"{read} {names}"
        if tensors and key not in self._names:
            self._names.add(key)
            self.sources += [ops.sources(tensors, [read] * len(tensors)), tensors]
        return made

    def _tensor(self, name: str) -> Tensor:
        parent, _, key = name.rpartition(".")
        module = self._block.get_submodule(parent)
        found = module._parameters.get(key)
        found = module._buffers.get(key) if found is None else found
        if found is None:
            raise UnknownStep(f"{name} is no parameter or buffer any more")
        return found


Structure = Callable[[Sequence[Any]], Any]


def structure_of(spec: Any) -> Structure:
    """Return a function from a list of outputs to what a forward returns."""
    if spec.is_leaf():
        return lambda values: values[0]
    if spec.type is tuple and all(child.is_leaf() for child in spec.children()):
        return tuple
    return lambda values: pytree.tree_unflatten(list(values), spec)


class Outputs:
    """What a program's results are of all that a forward returns."""

    def __init__(self, values: Sequence[Any], spec: Any) -> None:
        self.nodes: list[Node] = []
        """Those that the program computes, in order."""
        self.places = [self._place(value) for value in values]
        """Where each is found: the program's (0), an input (1), always the same (2); which."""
        self._structure = structure_of(spec)
        self._one = self.places == [(0, 0)] and spec.is_leaf()

    def _place(self, value: Any) -> tuple[int, Any]:
        if not isinstance(value, Node):
            return 2, value
        if value.op == "input":
            return 1, value.args[0]
        if value not in self.nodes:
            self.nodes.append(value)
        return 0, self.nodes.index(value)

    def flat(self, made: Sequence[Any], tensors: Sequence[Any]) -> list[Any]:
        """Return the leaves of a forward's outputs, in the order of pytrees."""
        held = (made, tensors)
        return [place if kind == 2 else held[kind][place] for kind, place in self.places]

    def returned(self, made: Sequence[Any], tensors: Sequence[Any]) -> Any:
        """Return the outputs as the forward returns them."""
        return made[0] if self._one else self._structure(self.flat(made, tensors))


def used_inputs(inputs: Sequence[Node], roots: Sequence[Node]) -> list[Node]:
    """Return the inputs that a program needs: those that it reads, and those that tell a size."""
    reached = {id(node) for node in Graph([], list(roots)).nodes()}
    used = [node for node in inputs if id(node) in reached]
    known = {size for node in used for size in node.shape}
    for node in inputs:
        told = {size for size in node.shape if isinstance(size, sympy.Symbol)} - known
        if told and id(node) not in reached and node.dtype in DTYPES:
            used.append(node)
            known |= told
    return used


class HasWeights(Protocol):
    """What holds the weights that a program reads."""

    weights: Weights


class Plan:
    """A program for calls that nothing but tensors and plain values are arguments of."""

    def __init__(self, compiled: Compiled, held: HasWeights, name: str) -> None:
        self.compiled = compiled
        self._sizes = compiled.sizes
        self._constants = held.weights.constants
        self._outputs = Outputs(compiled.outputs, compiled.structure)
        program = Program()
        emission = Emission(program, held.weights)
        used = used_inputs(compiled.graph.inputs, self._outputs.nodes)
        for node in used:
            emission.input(node)
        for node in self._outputs.nodes:
            program.output(emission.value(node))
        self._used = [node.args[0] for node in used]
        self._all = self._used == list(range(len(compiled.graph.inputs)))
        self._run = program.finish(name)
        self._threads = torch.get_num_threads

    @property
    def places(self) -> list[tuple[int, Any]]:
        """Return where each of the outputs is found, as `Outputs.places` does."""
        return self._outputs.places

    def fits(self, sizes: tuple[int, ...], objects: tuple[Any, ...]) -> Any:
        """Return the `state` for `run`; None where the plan is for inputs of other sizes."""
        return () if self._sizes.fit(sizes) else None

    def run(self, tensors: tuple[Tensor, ...], objects: tuple[Any, ...], state: Any) -> Any:
        """Return what the block's forward returns."""
        return self._outputs.returned(self.made(tensors), tensors)

    def flat(self, tensors: tuple[Tensor, ...]) -> list[Any]:
        """Return the leaves of what the block's forward returns, in the order of pytrees."""
        return self._outputs.flat(self.made(tensors), tensors)

    def made(self, tensors: tuple[Tensor, ...]) -> Sequence[Tensor]:
        """Run the program on the call's tensors and return its results in order."""
        given = tensors if self._all else tuple(tensors[i] for i in self._used)
        made: Sequence[Tensor] = self._run(given, (), self._threads())
        return made
