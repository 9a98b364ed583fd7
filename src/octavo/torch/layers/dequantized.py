"""The float weight of a quantized layer: computed when it is read, quantized when written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from octavo.errors import NotTrainableError
from octavo.torch import ops

Write = Callable[[Tensor], None]

_ELSEWHERE = (
    "the weight of a quantized layer is computed from its integers, so that nothing can be written "
    "there; write layer.weight.data, or change the float model and quantize it again"
)


# docs/notes/torch.md: "The weight is computed when it is used"
class Dequantized(Tensor):
    """The weight of a quantized layer, computed when it is used.

    Code around a layer may look at its weight's dtype, shape or device in each call; only what
    takes part in a computation is worth the memory. Calling it gives the values too, as
    `layer.weight()` of torch.ao's layers.

    What is written in place, here or into what shares memory with a float layer's weight (`data`,
    `detach()`, views), the layer holds from there on, or it raises (`requantize`).
    """

    _make: Callable[[], Tensor]
    _whole: Dequantized | None = None
    """The weight of which this is a view; None where it is none."""
    _read: _Values | None = None
    """Of a view: the whole weight's values, of whose memory it is a part."""
    _write: Write
    _is_hf_initialized = True
    """Asked by transformers before it fills a tensor with random values."""

    @staticmethod
    def of(
        shape: tuple[int, ...],
        make: Callable[[], Tensor],
        write: Write,
        dtype: torch.dtype = torch.float32,
    ) -> Dequantized:
        """Make a weight of `shape` and `dtype` that `make` reads and `write` has a layer hold."""
        made: Dequantized = Tensor._make_wrapper_subclass(Dequantized, shape, dtype=dtype)
        made._make, made._write = make, write
        return made

    def _view(self, values: Any, read: _Values) -> Any:
        """Return `values` as views of the memory of `read`: written, they change this weight."""
        if isinstance(values, (list, tuple)):
            return type(values)(self._view(v, read) for v in values)
        if not isinstance(values, Tensor):
            return values
        made = Tensor._make_subclass(Dequantized, values)
        made._make, made._whole, made._read = lambda: read.now(values), self, read
        return made

    def _memory(self) -> _Values:
        """Return the current values of the whole weight, of whose memory this tensor is a part."""
        if self._read is None:
            return _Values(self)
        self._read.refresh()  # other views, or the layer's buffers, may have been written since
        return self._read

    def __call__(self) -> Tensor:
        return self._make()

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return repr(self._make())

    def __deepcopy__(self, memo: Any) -> Tensor:
        return self._make().clone()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._make().clone().__reduce_ex__(protocol)

    def numpy(self, *, force: bool = False) -> npt.NDArray[Any]:
        """Return the values as an array, which cannot be written."""
        found: npt.NDArray[Any] = self._make().numpy(force=force)
        found.flags.writeable = False
        return found

    def tolist(self) -> list[Any]:
        """Return the values as nested lists."""
        found: list[Any] = self._make().tolist()
        return found

    def __dlpack__(self, **how: Any) -> Any:
        """Raise BufferError: other libraries could write to the values."""
        raise BufferError(f"{_ELSEWHERE}. Its values are layer.weight()")

    @property
    def data(self) -> Tensor:
        """The weight itself."""
        return self

    @data.setter
    def data(self, value: Tensor) -> None:
        _root(self)._write(value)

    @property
    def requires_grad(self) -> bool:
        """False: integers have no gradient."""
        return False

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Itself; raises NotTrainableError where a gradient is asked for."""
        if requires_grad:
            raise NotTrainableError(
                "weight.requires_grad: quantized weights are integers and cannot be trained; train "
                "the float model and quantize it afterwards"
            )
        return self

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = func._schema
        written = _written(schema, args, kwargs) if schema.is_mutable else []
        memories = {id(w): w._memory() for w in written}
        plain = {id(w): memories[id(w)].values if w._read is None else w._make() for w in written}
        before = [(w, memories[id(w)], memories[id(w)].values.clone()) for w in written]

        def values(x: Any) -> Any:
            if not isinstance(x, Dequantized):
                return x
            return plain[id(x)] if id(x) in plain else plain.setdefault(id(x), x._make())

        made = func(
            *torch.utils._pytree.tree_map(values, args),
            **{key: torch.utils._pytree.tree_map(values, value) for key, value in kwargs.items()},
        )
        for weight, memory, old in before:
            _flush(func, weight, memory, old)
        if written:
            return written[0] if schema.returns else made
        source = next((a for a in args if isinstance(a, Dequantized)), None)
        shares = any(r.alias_info is not None for r in schema.returns)
        if source is None or not shares:
            return made
        read = source._read or _Values(source, plain[id(source)])
        return _root(source)._view(made, read)


class _Values:
    """The values of a whole weight in memory, which views of it share."""

    def __init__(self, whole: Dequantized, values: Tensor | None = None) -> None:
        self._whole = whole
        self.values = whole._make() if values is None else values
        self._loads = ops.loads()

    def refresh(self) -> None:
        """Overwrite the values with those that the layer holds now."""
        self._loads = ops.loads()
        if self.values.shape == self._whole.shape:
            with torch.inference_mode(self.values.is_inference()):
                self.values.copy_(self._whole._make())

    def now(self, part: Tensor) -> Tensor:
        """Return `part` of the values, as they are after the last write to a weight."""
        if self._loads != ops.loads():
            self.refresh()
        return part


def _written(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Dequantized]:
    found = []
    for i, argument in enumerate(schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        given = kwargs.get(argument.name) if i >= len(args) else args[i]
        some = given if isinstance(given, (list, tuple)) else (given,)
        found += [tensor for tensor in some if isinstance(tensor, Dequantized)]
    return found


def _root(weight: Dequantized) -> Dequantized:
    return weight if weight._whole is None else weight._whole


def _flush(func: Any, weight: Dequantized, memory: _Values, old: Tensor) -> None:
    """Has the layer hold what was written; where it cannot, nothing was."""
    whole, values = _root(weight), memory.values
    try:
        if values.shape != whole.shape:
            raise NotTrainableError(f"{func.name()}: a quantized layer's weight keeps its shape")
        # Another of the views that `func` wrote may be held by now: only what differs is new.
        whole._write(torch.where(_same(values, old), whole._make(), values))
    except Exception:
        if values.shape == old.shape:
            values.copy_(old)
        raise
    if weight is not whole:
        # Python writes `weight[0] += 1` twice: into the view, and then the view where it is.
        memory.refresh()


def _same(a: Tensor, b: Tensor) -> Tensor:
    return (a == b) | (a.isnan() & b.isnan())
