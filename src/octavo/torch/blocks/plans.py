"""A plan: how one block runs calls of one form, as a program over its own weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from octavo.core.program import Program
from octavo.core.sources import Read
from octavo.torch import ops
from octavo.torch.blocks.compiled import Compiled
from octavo.torch.blocks.emission import Emission, Weights
from octavo.torch.blocks.nodes import Node, UnknownStep
from octavo.torch.blocks.reading import evaluated, names_read
from octavo.torch.layers.linear import QuantizedLinear


class Held:
    """The weights of a block, as programs read them, and what tells when they change."""

    def __init__(self, block: nn.Module) -> None:
        self._block = block
        self._names: set[str] = set()
        self.sources: list[Any] = []
        """Of guards: `Sources`, and the dict or tuple of tensors."""
        self.trainable = False
        """Whether a parameter that programs read asks for gradients."""
        self.weights = Weights(self._linear, self._constant)

    def _linear(self, name: str) -> Any:
        module = self._block.get_submodule(name)
        if type(module) is not QuantizedLinear:
            raise UnknownStep(f"{name} is a {type(module).__name__}")
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
        self.trainable |= any(t.requires_grad for t in tensors)
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
    """From outputs in a row to how a forward returns them."""
    if spec.is_leaf():
        return lambda values: values[0]
    if spec.type is tuple and all(child.is_leaf() for child in spec.children()):
        return tuple
    return lambda values: pytree.tree_unflatten(list(values), spec)


class Plan:
    """A program for calls whose objects are none."""

    def __init__(self, compiled: Compiled, held: Held, name: str) -> None:
        self.compiled = compiled
        self.constants = held.weights.constants
        program = Program()
        emission = Emission(program, held.weights)
        for node in compiled.graph.inputs:
            emission.input(node)
        self._places: list[tuple[int, Any]] = []
        made: dict[int, int] = {}
        for value in compiled.outputs:
            self._places.append(self._place(value, emission, program, made))
        self._run = program.finish(name)
        self._structure = structure_of(compiled.trace.structure)
        self._one = self._places == [(0, 0)] and compiled.trace.structure.is_leaf()
        self._threads = torch.get_num_threads

    def _place(
        self, value: Any, emission: Emission, program: Program, made: dict[int, int]
    ) -> tuple[int, Any]:
        """Where an output is found: of the program's, of the inputs, or always the same."""
        if not isinstance(value, Node):
            return 2, value
        if value.op == "input":
            return 1, value.args[0]
        if id(value) not in made:
            made[id(value)] = len(made)
            program.output(emission.value(value))
        return 0, made[id(value)]

    def fits(self, sizes: tuple[int, ...]) -> bool:
        """Whether it is for inputs of these sizes."""
        return self.compiled.sizes.fit(sizes)

    def run(self, tensors: tuple[Tensor, ...], objects: tuple[Any, ...]) -> Any:
        """What the block's forward returns."""
        made = self._run(tensors, (), self._threads())
        return made[0] if self._one else self._structure(self._picked(made, tensors))

    def flat(self, tensors: tuple[Tensor, ...]) -> list[Any]:
        """The same in a row, as pytrees have it."""
        return self._picked(self._run(tensors, (), self._threads()), tensors)

    def _picked(self, made: Sequence[Tensor], tensors: Sequence[Tensor]) -> list[Any]:
        held = (made, tensors)
        return [place if kind == 2 else held[kind][place] for kind, place in self._places]
