"""The float weight of a quantized layer: it can be read, and says so where it would be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor

from octavo.errors import NotTrainableError

_WRITTEN = (
    "the weight of a quantized layer is computed from its integers and cannot be written; change "
    "the float model (merge adapters into that one) and quantize it again"
)


class Dequantized(Tensor):
    """The weight of a quantized layer, computed when it is used.

    Code around a layer may look at its weight's dtype, shape or device in each call; only what
    takes part in a computation is worth the memory. Calling it gives the values too, as
    `layer.weight()` of torch.ao's layers. What would share memory with a float layer's weight
    (`data`, `detach()`, views) refuses to be written too: nothing would come of it.
    """

    _make: Callable[[], Tensor]

    @staticmethod
    def of(
        shape: tuple[int, ...], make: Callable[[], Tensor], dtype: torch.dtype = torch.float32
    ) -> Dequantized:
        """The weight of `shape` and `dtype` that `make` returns."""
        made: Dequantized = Tensor._make_wrapper_subclass(Dequantized, shape, dtype=dtype)
        made._make = make
        return made

    @staticmethod
    def _view(values: Any) -> Any:
        """`values`, which share the memory of some weight: with memory, but not to be written."""
        if isinstance(values, (list, tuple)):
            return type(values)(Dequantized._view(v) for v in values)
        if not isinstance(values, Tensor):
            return values
        made = Tensor._make_subclass(Dequantized, values)
        made._make = lambda: values
        return made

    def __call__(self) -> Tensor:
        return self._make()

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return repr(self._make())

    def __deepcopy__(self, memo: Any) -> Tensor:
        return self._make().clone()

    def numpy(self, *, force: bool = False) -> npt.NDArray[Any]:
        """The values as an array, not to be written."""
        found: npt.NDArray[Any] = self._make().numpy(force=force)
        found.flags.writeable = False
        return found

    def tolist(self) -> list[Any]:
        """The values as nested lists."""
        found: list[Any] = self._make().tolist()
        return found

    def __dlpack__(self, **how: Any) -> Any:
        """Raises BufferError: other libraries could write there."""
        raise BufferError(f"{_WRITTEN}. Its values are layer.weight()")

    @property
    def data(self) -> Tensor:
        """The weight itself."""
        return self

    @data.setter
    def data(self, value: Tensor) -> None:
        raise NotTrainableError(f"weight.data: {_WRITTEN}")

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
        if schema.is_mutable:
            _refuse_written(func, args, kwargs)
        args, kwargs = torch.utils._pytree.tree_map(_values, (args, kwargs))
        made = func(*args, **kwargs)
        shares = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
        return Dequantized._view(made) if shares else made


def _values(x: Any) -> Any:
    return x._make() if isinstance(x, Dequantized) else x


def _refuse_written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        given = kwargs.get(argument.name) if i >= len(args) else args[i]
        for tensor in given if isinstance(given, (list, tuple)) else (given,):
            if isinstance(tensor, Dequantized):
                raise NotTrainableError(f"{func.name()}: {_WRITTEN}")
