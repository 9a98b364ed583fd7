"""What a qconfig says of a layer, read once: the weight's integers, and what activations are to be.

Observers are asked by their attributes (`dtype`, `qscheme`, `ch_axis`, `calculate_qparams()`), so
that torch.ao's own and users' classes serve as well as ours. Nothing here loads torch.ao.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from octavo.errors import OptionError, brief, did_you_mean
from octavo.recipe.block_options import refuse_four_bits
from octavo.torch.qconfig import default_dynamic_qconfig
from octavo.torch.qconfig.observer_base import (
    FLOAT_QPARAMS,
    PER_CHANNEL,
    PER_TENSOR,
    RANGES,
    SYMMETRIC,
    Float32,
    as_float32,
    bare_name,
)
from octavo.torch.qconfig.rounding import rounded

_HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class ObservedWeight:
    """Integers of a weight, in its shape: `w = (q - zero_point) * scale`.

    `q` int8 or uint8 in `qmin..qmax`; `scale` float32 [channels]; `zero_point` int32 [channels], or
    float32 for per_channel_affine_float_qparams; channels is 1 where `axis` is None. `signal` and
    `noise` are the sums of squares of the weight and of what rounding changed.
    """

    q: npt.NDArray[Any]
    scale: Float32
    zero_point: npt.NDArray[Any]
    axis: int | None
    qmin: int
    qmax: int
    signal: float
    noise: float


class ActivationKind(Enum):
    """What becomes of a layer's input."""

    DYNAMIC = "uint8 per row"
    FLOAT16 = "float, weights float16"
    WEIGHTS_ONLY = "float"


@dataclass(frozen=True)
class InputScheme:
    """What becomes of a layer's input; `note` is what the qconfig says beyond that, or ""."""

    kind: ActivationKind
    note: str = ""


def observe_weight(qconfig: Any, weight: torch.Tensor, name: str) -> ObservedWeight:
    """Run a fresh `qconfig.weight()` over the weight, and quantize as that observer says.

    The integers are those of torch.quantize_per_tensor and torch.quantize_per_channel on x86.
    Raises OptionError, a ValueError, that begins with `name`: for weights with NaN or infinity, and
    for observers that make no 8-bit integers or parameters that do not fit.
    """
    try:
        observer, dtype, scheme = _weight_side(qconfig)
        if dtype not in RANGES:
            raise OptionError(f"the qconfig keeps the weight in {dtype}: there are no integers")
        w = weight.detach().to("cpu", torch.float32).contiguous()
        values: Float32 = w.numpy()
        if w.numel() and not (np.isfinite(values.min()) and np.isfinite(values.max())):
            raise OptionError("the weight holds NaN or infinity; repair it, or leave the layer out")
        axis = _axis(observer, scheme, w)
        qmin, qmax = _bounds(observer, dtype)
        scale, zero = _qparams(observer, w, 1 if axis is None else w.shape[axis], scheme)
    except ValueError as error:  # an OptionError of ours, or what an observer raises
        raise OptionError(f"{name}: {error}") from None
    q, signal, noise = rounded(values, scale, zero, axis, (qmin, qmax), dtype)
    exact = zero if scheme == FLOAT_QPARAMS else zero.astype(np.int32)
    return ObservedWeight(q, scale, exact, axis, qmin, qmax, signal, noise)


def dtype_of(qconfig: Any) -> str:
    """Return what the weight is stored as: "int8", "uint8", "float16" or "bfloat16"."""
    return _weight_side(qconfig)[1]


def is_affine(qconfig: Any) -> bool:
    """Tell whether the weight's integers may have zero points.

    Symmetric uint8 counts as none, whose zero is subtracted; but 0..255 given as a range of its own
    has it at 127, so that 128 is left of 255, which int8 lacks.
    """
    observer, dtype, scheme = _weight_side(qconfig)
    if dtype not in RANGES:
        return False
    own = getattr(_inner(observer), "has_customized_qrange", False)
    off_middle = dtype == "uint8" and own and _bounds(observer, dtype) == RANGES[dtype]
    return scheme not in SYMMETRIC or off_middle


def describe_weight(qconfig: Any) -> str:
    """Describe the weight: "int8 per channel", "uint8 per tensor, affine", "float16"."""
    observer, dtype, scheme = _weight_side(qconfig)
    if dtype in _HALVES:
        return dtype
    said = f"{dtype} per {'tensor' if scheme in PER_TENSOR else 'channel'}"
    if scheme in PER_CHANNEL and observer.ch_axis != 0:
        said += f" of axis {observer.ch_axis}"
    if scheme not in SYMMETRIC:
        said += ", affine" if scheme != FLOAT_QPARAMS else ", float zero points"
    low, high = _bounds(observer, dtype)
    if (low, high) != RANGES[dtype]:
        said += f", {low}..{high}"
    kind = type(_inner(observer)).__name__
    return said if kind.endswith("MinMaxObserver") else f"{said}, {kind}"


def activation_of(qconfig: Any) -> InputScheme:
    """Return how the layer's input is quantized, or that it stays float.

    As in torch.ao's quantize_dynamic, observers of 8-bit activations never run: each row's range is
    measured when it comes. Raises OptionError for what that cannot stand for.
    """
    weight = dtype_of(qconfig)
    observer = _made(qconfig, "activation")
    if observer is None or isinstance(observer, torch.nn.Identity):
        dynamic = weight not in _HALVES
        return InputScheme(ActivationKind.DYNAMIC if dynamic else ActivationKind.FLOAT16)
    dtype, kind = bare_name(getattr(observer, "dtype", None)), type(observer).__name__
    known = (*RANGES, *_HALVES, "float32")
    if dtype not in known:
        raise OptionError(
            f"the qconfig's activation is {kind} with dtype {dtype!r}.{did_you_mean(dtype, known)}"
        )
    if hasattr(_inner(observer), "scale"):
        raise OptionError(
            f"the qconfig's activation is {kind}, which fixes its scale; dynamic quantization "
            'finds one for each row: use PlaceholderObserver.with_args(dtype="uint8", '
            "is_dynamic=True)"
        )
    if weight in _HALVES:
        note = f"float activations, as the weights are {weight}" if dtype in RANGES else ""
        return InputScheme(ActivationKind.FLOAT16, note)
    is_dynamic = bool(getattr(observer, "is_dynamic", False))
    if dtype in _HALVES and is_dynamic:
        raise OptionError(
            f"the qconfig's activation is dynamic with dtype {dtype}, its weight {weight}; take "
            "float16_dynamic_qconfig, or an activation of dtype uint8"
        )
    if dtype in RANGES or is_dynamic:
        return InputScheme(ActivationKind.DYNAMIC, _not_kept(observer, dtype, is_dynamic))
    return InputScheme(ActivationKind.WEIGHTS_ONLY)


def _not_kept(observer: Any, dtype: str, is_dynamic: bool) -> str:
    """Say what dynamic quantization does otherwise than this observer of 8-bit activations."""
    notes = []
    if not is_dynamic and hasattr(observer, "min_val"):
        notes.append(f"{type(observer).__name__} does not run: each row has its own range")
    if dtype == "int8":
        notes.append("activations are uint8, not int8")
    elif dtype == "uint8" and (bounds := _bounds(observer, dtype)) != RANGES[dtype]:
        notes.append(f"activations are in 0..255, not {bounds[0]}..{bounds[1]}")
    return "; ".join(notes)


def _weight_side(qconfig: Any) -> tuple[Any, str, str]:
    """Return (observer, dtype, scheme); the scheme is "" for float16 and bfloat16."""
    observer = _made(qconfig, "weight")
    kind = type(observer).__name__
    if not hasattr(observer, "dtype"):
        raise OptionError(
            f"the qconfig's weight is {kind}, which says nothing of how to hold a weight; use "
            'MinMaxObserver.with_args(dtype="int8", qscheme="per_tensor_symmetric")'
        )
    dtype = bare_name(observer.dtype)
    refuse_four_bits(f"the qconfig's weight is {kind} with dtype", dtype)
    known = (*RANGES, *_HALVES)
    if dtype not in known:
        raise OptionError(
            f"the qconfig's weight is {kind} with dtype {dtype!r}.{did_you_mean(dtype, known)}"
        )
    if dtype in _HALVES:
        return observer, dtype, ""
    scheme, schemes = bare_name(getattr(observer, "qscheme", None)), (*PER_TENSOR, *PER_CHANNEL)
    if scheme not in schemes:
        raise OptionError(
            f"the qconfig's weight is {kind} with qscheme {scheme!r}."
            f"{did_you_mean(scheme, schemes)}"
        )
    return observer, dtype, scheme


def _made(qconfig: Any, side: str) -> Any:
    """Make a new observer of one side; None for an activation of which nothing is said."""
    if not (hasattr(qconfig, "activation") and hasattr(qconfig, "weight")):
        raise OptionError(
            f"{qconfig!r} is no qconfig: it lacks activation and weight; use "
            "default_dynamic_qconfig or QConfig(activation=..., weight=...)"
        )
    make = getattr(qconfig, side)
    if make is None:
        return default_dynamic_qconfig.weight() if side == "weight" else None
    with warnings.catch_warnings():  # torch.ao's observers warn of their own end
        warnings.simplefilter("ignore")
        try:
            return make()
        except OptionError:
            raise
        except (TypeError, ValueError, AssertionError, NotImplementedError) as error:
            raise OptionError(
                f"the qconfig's {side} {make!r} cannot make an observer: {brief(error)}"
            ) from None


def _inner(observer: Any) -> Any:
    """Return the observer in one of torch.ao's fake quantizers; another observer as it is."""
    return getattr(observer, "activation_post_process", observer)


def _axis(observer: Any, scheme: str, w: torch.Tensor) -> int | None:
    if scheme in PER_TENSOR:
        return None
    axis = int(observer.ch_axis)
    if not -w.ndim <= axis < w.ndim:
        raise OptionError(
            f"the qconfig's weight has ch_axis={axis}, no axis of shape {tuple(w.shape)}"
        )
    counted: int = axis % w.ndim
    return counted


def _bounds(observer: Any, dtype: str) -> tuple[int, int]:
    least, most = RANGES[dtype]
    low, high = (getattr(_inner(observer), side, None) for side in ("quant_min", "quant_max"))
    bounds = (least if low is None else int(low), most if high is None else int(high))
    if not least <= bounds[0] < bounds[1] <= most:
        raise OptionError(
            f"the qconfig's {type(observer).__name__} has quant_min {bounds[0]} and quant_max "
            f"{bounds[1]}; {dtype} has {least}..{most}"
        )
    return bounds


def _qparams(observer: Any, w: Any, channels: int, scheme: str) -> tuple[Float32, Float32]:
    """Return (scale, zero_point), float32 [channels] each."""
    if w.numel() == 0:
        return np.ones(channels, np.float32), np.zeros(channels, np.float32)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        observer(w)
        found = observer.calculate_qparams()
    scale, zero = (np.array(as_float32(x).reshape(-1)) for x in found)
    kind = type(observer).__name__
    if scale.size != channels or zero.size != channels:
        raise OptionError(
            f"the qconfig's {kind} gives {scale.size} scales and {zero.size} zero points where "
            f"there are {channels}"
        )
    with np.errstate(all="ignore"):
        usable = np.isfinite(scale) & (scale > 0) & np.isfinite(1 / scale) & np.isfinite(zero)
    if not usable.all():
        c = int(np.flatnonzero(~usable)[0])
        raise OptionError(
            f"the qconfig's {kind} gives scale {scale[c]} and zero point {zero[c]}, with which "
            f"nothing can be quantized: the weight's range is {float(w.min())}..{float(w.max())}"
        )
    return scale, zero
