"""A call of a block, traced: the ATen operators that it runs, with open sizes.

The block's own forward runs on fake tensors, whatever its class is. Parameters and buffers are
constants of the graph. What the sizes were asked meanwhile (`if length > 1`) comes back as guards.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from octavo.torch.blocks.nodes import UnknownStep


@dataclass
class Trace:
    """What one call of a block runs."""

    graph: fx.GraphModule
    shapes: ShapeEnv
    inputs: list[tuple[Any, ...]]
    """Of each input its sizes: ints, or expressions over the symbols."""
    structure: Any
    """How outputs were returned, as a pytree's."""

    def size(self, size: Any) -> Any:
        """Return a traced size as an int, or as an expression over the symbols that are left."""
        if isinstance(size, int):
            return size
        found = self.shapes.replace(size.node.expr)
        return int(found) if found.is_number else found


def trace(run: Callable[..., Any], tensors: Sequence[Tensor]) -> Trace:
    """Trace what `run(*tensors)` does. Raises UnknownStep where that cannot be said."""
    shapes = ShapeEnv(duck_shape=False)
    mode = FakeTensorMode(shape_env=shapes, allow_non_fake_inputs=True)
    mode.cache_enabled = False  # no two operators are of the same open sizes
    structure: list[Any] = []

    def flat(*given: Tensor) -> Any:
        outputs, spec = pytree.tree_flatten(run(*given))
        structure.append(spec)
        return outputs

    packed: list[Tensor] = []
    for t in tensors:
        packed.append(_packed(t, any(t is other for other in packed)))
    # With the mode on, tensors that a forward makes are fake ones too, and may have open sizes.
    with torch.no_grad(), _quiet(), mode:
        try:
            fakes = [mode.from_tensor(t, static_shapes=False) for t in packed]
            traced = make_fx(
                flat, tracing_mode="real", pre_dispatch=True, _allow_non_fake_inputs=True
            )(*fakes)
        except UnknownStep:
            raise
        except Exception as error:  # anything at all: it is somebody else's code
            first = str(error).strip().split("\n", 1)[0]
            raise UnknownStep(f"could not be traced ({type(error).__name__}: {first})") from error
    result = Trace(traced, shapes, [], structure[-1])
    result.inputs = [tuple(result.size(s) for s in fake.shape) for fake in fakes]
    return result


def _packed(tensor: Tensor, again: bool) -> Tensor:
    """Return the tensor, or one like it without gaps: guards would be about strides, too.

    A tensor that is there `again` is another input, which other calls give another tensor.
    """
    if tensor.is_contiguous() and not again:
        return tensor
    return torch.empty(tensor.shape, dtype=tensor.dtype)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what torch logs of code that cannot be traced."""
    logger = logging.getLogger("torch")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before
