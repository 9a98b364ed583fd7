"""What every observer has: its arguments, checked, and the way from a range to its parameters."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from octavo.errors import OptionError, did_you_mean

Float32 = npt.NDArray[np.float32]

EPS = float(np.finfo(np.float32).eps)
RANGES = {"int8": (-128, 127), "uint8": (0, 255)}
PER_TENSOR = ("per_tensor_affine", "per_tensor_symmetric")
FLOAT_QPARAMS = "per_channel_affine_float_qparams"
PER_CHANNEL = ("per_channel_affine", "per_channel_symmetric", FLOAT_QPARAMS)
SYMMETRIC = ("per_tensor_symmetric", "per_channel_symmetric")
_QUANTIZED = {"qint8": "int8", "quint8": "uint8"}
PLACEHOLDERS = ("int8", "uint8", "float16", "bfloat16", "float32")


def bare_name(value: object) -> str:
    """Return the bare name of a dtype or a qscheme.

    `torch.qint8`, `torch.int8` or "int8" -> "int8"; `torch.per_tensor_affine` -> its name.

    By name only, so that constants which torch has dropped, or will drop, need not exist.
    """
    text = str(value).removeprefix("torch.")
    return _QUANTIZED.get(text, text)


def as_float32(x: Any) -> Float32:
    """Return a tensor's values as a NumPy array of float32."""
    array: Float32 = x.detach().to("cpu", torch.float32).numpy()
    return array


@dataclass(frozen=True)
class ObserverFactory:
    """Makes observers: `factory()` is `make(**arguments)`. What `with_args` returns.

    Factories with equal arguments are equal; they can be pickled where their arguments can.
    """

    make: Callable[..., Any]
    arguments: dict[str, Any] = field(default_factory=dict)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Make the observer; arguments given here go before those of `with_args`."""
        return self.make(*args, **{**self.arguments, **kwargs})

    def with_args(self, **kwargs: Any) -> ObserverFactory:
        """Return a factory with these arguments too; OptionError names one that does not exist."""
        parameters = inspect.signature(self.make).parameters
        if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            for name in kwargs:
                if name not in parameters:
                    raise OptionError(
                        f"{self._name}.with_args: unknown argument {name!r}."
                        f"{did_you_mean(name, parameters)}"
                    )
        return ObserverFactory(self.make, {**self.arguments, **kwargs})

    @property
    def _name(self) -> str:
        return getattr(self.make, "__name__", repr(self.make))

    def __hash__(self) -> int:  # arguments may hold a dict (factory_kwargs)
        return hash((self.make, frozenset(self.arguments)))

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{self._name}.with_args({inside})"


class ObserverBase(torch.nn.Module):
    """A module that looks at tensors as they pass, and then tells how to quantize their like."""

    min_val: torch.Tensor
    max_val: torch.Tensor

    def __init__(self, dtype: Any, is_dynamic: bool = False) -> None:
        super().__init__()
        self.dtype = dtype if isinstance(dtype, torch.dtype) else getattr(torch, bare_name(dtype))
        self.is_dynamic = is_dynamic

    @classmethod
    def with_args(cls, **kwargs: Any) -> ObserverFactory:
        """Return a factory for a QConfig: `MinMaxObserver.with_args(dtype="int8")`."""
        return ObserverFactory(cls).with_args(**kwargs)


class UniformObserver(ObserverBase):
    """Observers of 8-bit integers: a range, and from it `calculate_qparams()`.

    `dtype` int8 or uint8 (torch.qint8 and torch.quint8 are the same); `eps` is the least scale;
    `quant_min` and `quant_max`, given together, take the place of the dtype's range;
    `reduce_range` halves either. Raises OptionError for what is unknown or contradictory.
    """

    _version = 3  # of state_dict, as torch.ao's that have the same names in it
    _schemes: tuple[str, ...] = PER_TENSOR

    def __init__(
        self,
        dtype: Any = "uint8",
        qscheme: Any = "per_tensor_affine",
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: dict[str, Any] | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
    ) -> None:
        self._dtype_name = self._one_of("dtype", dtype, tuple(RANGES))
        self._scheme = self._one_of("qscheme", qscheme, self._schemes)
        if self._scheme == FLOAT_QPARAMS and self._dtype_name != "uint8":
            raise self._error(f"qscheme {FLOAT_QPARAMS} goes with dtype uint8, not {dtype}")
        super().__init__(dtype, is_dynamic)
        self.qscheme = getattr(torch, self._scheme, self._scheme)
        self.reduce_range = bool(reduce_range)
        self.has_customized_qrange = quant_min is not None and quant_max is not None
        self.quant_min, self.quant_max = self._bounds(quant_min, quant_max)
        if not 0 <= eps < math.inf:
            raise self._error(f"eps {eps} must be 0 or more, and finite")
        self._device = self._device_of(factory_kwargs or {})
        self.register_buffer("eps", torch.tensor([eps], dtype=torch.float32, device=self._device))
        self.reset_min_max_vals()

    def calculate_qparams(self) -> tuple[Any, Any]:
        """Return (scale, zero_point): float32 [channels], and int32 or int64 [channels].

        zero_point is float32 for per_channel_affine_float_qparams. ValueError where nothing was
        observed.
        """
        lo, hi = self._range()
        scale, zero = self._qparams(np.atleast_1d(lo), np.atleast_1d(hi))
        device = self.min_val.device
        return torch.from_numpy(scale).to(device), torch.from_numpy(zero).to(device)

    def reset_min_max_vals(self) -> None:
        """Forgets all that was observed."""
        shape = (0,) if self._schemes is PER_CHANNEL else ()
        for name, value in (("min_val", math.inf), ("max_val", -math.inf)):
            empty = torch.full(shape, value, dtype=torch.float32, device=self._device)
            self.register_buffer(name, empty)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *others: Any) -> None:
        """Load a range of any number of channels, as only what is observed shows how many."""
        for name in ("min_val", "max_val"):
            value = state_dict.get(f"{prefix}{name}")
            if isinstance(value, torch.Tensor) and value.dim() == int(self._schemes is PER_CHANNEL):
                own = getattr(self, name)
                setattr(self, name, own.new_empty(value.shape))
        super()._load_from_state_dict(state_dict, prefix, *others)

    def extra_repr(self) -> str:
        """Return the range, for repr()."""
        return f"min_val={self.min_val}, max_val={self.max_val}"

    def _range(self) -> tuple[Float32, Float32]:
        if not self._has_seen():
            raise ValueError(
                f"{type(self).__name__} has observed nothing yet; call it with a tensor first"
            )
        return self.min_val.cpu().numpy(), self.max_val.cpu().numpy()

    def _has_seen(self) -> bool:
        return bool(self.min_val.numel()) and not bool((self.min_val > self.max_val).any())

    def _qparams(self, lo: Float32, hi: Float32) -> tuple[Float32, npt.NDArray[Any]]:
        """Compute scales and zero points as torch.ao does.

        That is not as `octavo.core.qparams` does: `eps` instead of 1.
        """
        eps = self.eps.cpu().numpy()
        steps = np.float32(self.quant_max - self.quant_min)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            if self._scheme == FLOAT_QPARAMS:
                scale = (hi - lo) / steps
                scale = np.where(scale > eps, scale, np.float32(1))
                return scale, -lo / scale
            lo, hi = np.minimum(lo, np.float32(0)), np.maximum(hi, np.float32(0))
            if self._scheme in SYMMETRIC:
                scale = np.maximum(np.maximum(-lo, hi) / (steps / np.float32(2)), eps)
                return scale, np.full(scale.shape, self._middle(), np.int64)
            scale = np.maximum((hi - lo) / steps, eps)
            below = np.nan_to_num(np.rint(lo / scale)).astype(np.int32)  # 0 / 0 if eps is 0
        return scale, np.clip(self.quant_min - below, self.quant_min, self.quant_max)

    def _middle(self) -> int:
        if self._dtype_name == "int8":
            return 0
        return (self.quant_min + self.quant_max) // 2 if self.has_customized_qrange else 128

    def _bounds(self, low: int | None, high: int | None) -> tuple[int, int]:
        least, most = RANGES[self._dtype_name]
        if self.reduce_range and self._dtype_name == "uint8" and self._scheme in SYMMETRIC:
            raise self._error(
                "reduce_range does not go with symmetric uint8; use dtype int8, an affine "
                "qscheme, or quant_min and quant_max instead"
            )
        if (low is None) != (high is None):
            raise self._error(
                f"quant_min {low} and quant_max {high} must be given together, or neither"
            )
        if low is None or high is None:
            low, high = least, most
        elif not least <= low <= 0 <= high <= most or low == high:
            raise self._error(
                f"quant_min {low} and quant_max {high} must hold 0 and lie within {least}..{most}, "
                f"which {self._dtype_name} has" + (", or take dtype int8" if low < 0 else "")
            )
        return (low // 2, high // 2) if self.reduce_range else (low, high)

    def _device_of(self, factory_kwargs: dict[str, Any]) -> Any:
        for name, value in factory_kwargs.items():
            if name not in ("device", "dtype"):
                raise self._error(
                    f"unknown key {name!r} in factory_kwargs."
                    f"{did_you_mean(name, ('device', 'dtype'))}"
                )
            if name == "dtype" and value not in (None, torch.float32):
                raise self._error(f"factory_kwargs dtype {value} must be torch.float32")
        return factory_kwargs.get("device")

    def _one_of(self, what: str, value: object, known: tuple[str, ...]) -> str:
        name = bare_name(value)
        if name in known:
            return name
        raise self._error(f"{what} {value!r} is not supported.{did_you_mean(name, known)}")

    def _refuse_dynamic(self, is_dynamic: bool) -> None:
        if is_dynamic:
            raise self._error(
                "is_dynamic=True needs an observer that keeps nothing: MinMaxObserver, "
                "MovingAverageMinMaxObserver with averaging_constant=1, or PlaceholderObserver"
            )

    def _error(self, text: str) -> OptionError:
        return OptionError(f"{type(self).__name__}: {text}")
