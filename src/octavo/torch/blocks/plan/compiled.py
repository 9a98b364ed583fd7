"""A block's call as steps: traced, read, fused; the same for all layers of one structure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from octavo.core.attention_type import AttentionType
from octavo.torch.blocks.emit import aten, emitters  # noqa: F401  # register readers and emitters
from octavo.torch.blocks.fuse.fusions import fuse
from octavo.torch.blocks.nodes import Graph, Node
from octavo.torch.blocks.trace.reading import Reading
from octavo.torch.blocks.trace.sizes import Sizes
from octavo.torch.blocks.trace.tracing import trace


@dataclass
class Compiled:
    """Nodes of a block's call, and what its sizes have to be."""

    graph: Graph
    outputs: list[Any]
    """In the order of the pytree: nodes, numbers and None."""
    structure: Any
    """How a forward returns them, as a pytree's."""
    sizes: Sizes
    place: dict[str, int] | None = None
    """Where the block stands, if what it computes depends on that."""


def names_of(block: nn.Module) -> Mapping[int, str]:
    """Return the names of a block's parameters and buffers, by identity."""
    found: dict[int, str] = {}
    for name, module in block.named_modules():
        for key, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None:
                found.setdefault(id(tensor), f"{name}.{key}".removeprefix("."))
    return found


def compile_call(
    block: nn.Module,
    run: Callable[..., Any],
    tensors: Sequence[Tensor],
    attention: AttentionType = AttentionType.FLOAT32,
) -> Compiled:
    """Compile what `run(*tensors)` does. Raises UnknownStep where programs cannot do that."""
    traced = trace(run, tensors)
    graph, outputs = Reading(traced, names_of(block)).graph()
    places = {id(n): i for i, n in enumerate(graph.outputs)}
    fuse(graph)
    if attention is AttentionType.BFLOAT16:
        for node in graph.nodes():
            if node.op == "attention":
                node.attributes["bfloat16"] = True
    outputs = [
        graph.outputs[places[id(value)]] if isinstance(value, Node) else value for value in outputs
    ]
    return Compiled(graph, outputs, traced.structure, Sizes(traced))  # without what was traced
