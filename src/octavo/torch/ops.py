"""Custom operators: how compiled and exported programs call the kernel core.

In eager mode a layer calls the C++ core directly; `direct` tells when that is right. Everything
else (torch.compile, torch.export, tracing, dispatch modes, autograd) goes through an operator
`octavo::<layer>` with a fake kernel for shapes, whose backward says why there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._C._functorch import TransformType
from torch.autograd import forward_ad
from torch.utils.weak import WeakTensorKeyDictionary

from octavo.core.live_buffers import Read, Sources
from octavo.errors import NotTrainableError

_T = TypeVar("_T")
_Call = TypeVar("_Call", bound=Callable[..., Any])

# Looked up once: a call of a small layer takes but microseconds.
_is_grad_enabled = torch.is_grad_enabled
is_dynamo_compiling = torch.compiler.is_dynamo_compiling
dispatch_modes = torch._C._len_torch_dispatch_stack
is_tracing = torch._C._is_tracing
functorch_level = torch._C._functorch.peek_interpreter_stack

_WHY = (
    "quantized weights are integers and cannot be trained. Run the model under "
    "torch.inference_mode() or torch.no_grad(), freeze what comes before it, or train the float "
    "model and quantize it afterwards"
)

CODES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
"""Dtypes that kernels read and write, by the numbers of `octavo.core.kernels.buffers.FloatType`."""


def uncompiled(function: _Call) -> _Call:
    """Return the function such that torch.compile leaves it to Python.

    That is what torch.compiler.disable gives, which imports dynamo at once. That takes longer than
    all of Octavo, and most people never compile.
    """
    late = torch._disable_dynamo(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return late(*args, **kwargs) if is_dynamo_compiling() else function(*args, **kwargs)

    return call  # type: ignore[return-value]


# docs/notes/torch.md: "There are two ways to call a layer"
def direct(x: Tensor) -> bool:
    """Tell whether a layer may read `x` by its address, with no operator in between."""
    # Export without dynamo shows as a fake tensor or a dispatch mode.
    plain = (
        not is_dynamo_compiling()
        and type(x) is Tensor
        and x.is_cpu
        and not (x.requires_grad and _is_grad_enabled())
        and not x.is_neg()
        and not x.is_nested
        and not dispatch_modes()
        and not is_tracing()
        and functorch_level() is None
        and forward_ad._current_level < 0
        and (x.data_ptr() != 0 or x.numel() == 0)  # autograd's zeros have no memory
    )
    if not plain and not torch.compiler.is_compiling():
        _refuse_forward_gradients(x)
    return plain


def _refuse_forward_gradients(x: Tensor) -> None:
    """Raise NotTrainableError where torch.func or forward-mode differentiation asks for a gradient.

    An operator would drop a tangent, and torch.func's errors speak of other things.
    """
    level = functorch_level()
    if level is not None and level.key() in (TransformType.Grad, TransformType.Jvp):
        raise NotTrainableError(f"torch.func asks for a gradient: {_WHY}")
    if forward_ad._current_level >= 0 and forward_ad.unpack_dual(x).tangent is not None:
        raise NotTrainableError(f"forward-mode differentiation asks for a gradient: {_WHY}")


def define(
    name: str, schema: str, run: Callable[..., Any], fake: Callable[..., Any]
) -> Callable[..., Any]:
    """Register `octavo::name`: `run` on the CPU, `fake` for shapes and dtypes alone.

    `schema` is that of `torch.library.custom_op`, as `(Tensor x, int n) -> Tensor`.
    """
    op = torch.library.custom_op(
        f"octavo::{name}", run, mutates_args=(), device_types="cpu", schema=schema
    )
    op.register_fake(fake)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.octavo_inputs = [_kind(value) for value in inputs]

    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        given = next(g for g in gradients if isinstance(g, Tensor))

        def refuse(kind: Any) -> Any:
            if isinstance(kind, list):
                return [refuse(k) for k in kind]
            return None if kind is None else no_backward(given, name, *kind)

        return tuple(refuse(kind) for kind in ctx.octavo_inputs)

    op.register_autograd(backward, setup_context=setup_context)
    return op  # type: ignore[no-any-return]


def _kind(value: Any) -> Any:
    """Return shape and dtype of a tensor that may have a gradient; None for others."""
    if isinstance(value, (list, tuple)) and any(isinstance(v, Tensor) for v in value):
        return [_kind(v) for v in value]
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return None
    return tuple(value.shape), value.dtype


def _refuse(gradient: Tensor, op: str, shape: Any, dtype: torch.dtype) -> Tensor:
    raise NotTrainableError(f"octavo::{op} has no backward: {_WHY}")


# An operator, because torch.compile traces the backward of what it compiles in grad mode, wanted or
# not: the error is for those who run it.
no_backward = torch.library.custom_op(
    "octavo::no_backward",
    _refuse,
    mutates_args=(),
    schema="(Tensor gradient, str op, SymInt[] shape, ScalarType dtype) -> Tensor",
)
no_backward.register_fake(lambda gradient, op, shape, dtype: gradient.new_empty(shape, dtype=dtype))


_loads = 0


def loads() -> int:
    """Return how often state was loaded into quantized layers: tensors may have changed since."""
    return _loads


def count_load() -> None:
    """Make all layers and operators bind their kernels again."""
    global _loads  # noqa: PLW0603
    _loads += 1


def sources(tensors: Sequence[Tensor | None], reads: Sequence[Read]) -> Sources:
    """Return the Sources of a kernel that is about to be made from CPU tensors.

    `reads` says how the kernel uses each tensor.
    """
    at = [0 if t is None else t.data_ptr() for t in tensors]
    how = [int(_read(t, read)) for t, read in zip(tensors, reads, strict=True)]
    return Sources(tuple(tensors), at, [_size(t) for t in tensors], how)


def _read(tensor: Tensor | None, read: Read) -> Read:
    """Return `read`, or Read.HASHED (all bytes) where no version counts what is written."""
    if tensor is None or read is not Read.SUMMED:
        return read
    return Read.HASHED if tensor.is_inference() or tensor.is_shared() else read


def _size(tensor: Tensor | None) -> int:
    if tensor is None:
        return 0
    return tensor.nbytes if tensor.is_contiguous() else -1


class KernelCache:
    """What was made of the weights that an operator gets, kept while the first of them lives.

    Compiled programs hand over the same tensors in each call; packing sums and pointers up anew
    would cost more than a small layer itself. `vectors` tells how kernels use all but the first.
    """

    def __init__(self, vectors: Read = Read.COPIED) -> None:
        self._kept: Any = WeakTensorKeyDictionary()
        self._vectors = vectors

    def get(self, key: Tensor, others: tuple[Any, ...], make: Callable[[], _T]) -> _T:
        """Return what `make` made for these tensors and numbers; anew where one has changed."""
        tensors = (key, *[v for v in others if isinstance(v, Tensor)])
        numbers = [v for v in others if not isinstance(v, Tensor)]
        found = self._kept.get(key)
        if (
            found is None
            or found[0] != _loads
            or found[1] != numbers
            or not found[2].current_of(tensors)
        ):
            reads = [Read.SUMMED, *[self._vectors] * (len(tensors) - 1)]
            held = sources(tensors, reads)
            found = self._kept[key] = (_loads, numbers, held, make())
        return found[3]  # type: ignore[no-any-return]


def over_weights(
    kernel: Callable[..., Callable[..., Any]], vectors: Read = Read.COPIED
) -> Callable[..., Any]:
    """Return an operator's implementation, which calls a kernel with the first argument.

    `kernel` makes the kernel from all other arguments. It is kept for the weights that it was made
    from, the first of which is the second argument.
    """
    place = len(_caches)
    _caches.append(KernelCache(vectors))

    def run(x: Tensor, weight: Tensor, *others: Any) -> Any:
        return _caches[place].get(weight, others, lambda: kernel(weight, *others))(x)

    return run


# Not in the closures, which PyTorch's registry keeps beyond the end of the interpreter.
_caches: list[KernelCache] = []


def allowed(x: Tensor, name: str = "x") -> TypeError:
    """Return the error about the dtype or device of the argument `name`."""
    if not x.is_cpu:
        return TypeError(
            f"{name}: is on {x.device}; quantized layers run on the CPU: call {name}.cpu()"
        )
    return TypeError(
        f"{name}: needs float32, float16, bfloat16 or float64, not "
        f"{str(x.dtype).removeprefix('torch.')}"
    )
