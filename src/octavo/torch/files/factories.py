"""Factories of models: by their names, and what they make on device meta, without weights."""

from __future__ import annotations

import contextlib
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext

from octavo.errors import ModelError, OptionError
from octavo.files.lookup import error_line, load_object
from octavo.torch.layers.base import QuantizedModule

_TORCH = str(Path(torch.__file__).parent)
_FILLS = frozenset(
    getattr(Tensor, name)
    for name in ("fill_", "normal_", "uniform_", "zero_", "trunc_normal_")
    if hasattr(Tensor, name)
)

_NOT_COPIED = r".*copying from a non-meta parameter in the checkpoint to a meta"
"""What load_state_dict says of each parameter."""


def make_model(text: str) -> nn.Module:
    """Return what the callable named `text` returns; modules in the current folder are found.

    Raises ModelError, which says what does not exist, is not callable, fails or is no model.
    """
    found = load_object(text, ModelError)
    if not callable(found) or isinstance(found, nn.Module):
        path = text.partition(":")[2]
        hint = f"; write a function that returns it: def make(): return {path}"
        raise ModelError(
            f"{text} is of type {type(found).__name__}; needs a callable without arguments that "
            f"returns the float model{hint if isinstance(found, nn.Module) else ''}"
        )
    try:
        model = found()
    except (Exception, SystemExit) as error:
        raise ModelError(
            f"{text} fails: {error_line(error)}; it is called without arguments and returns the "
            "float model: mend it"
        ) from error
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"{text} returned {type(model).__name__}; needs the float model, a torch.nn.Module"
        )
    return model


def skeleton(model_factory: Callable[[], nn.Module], device: str) -> nn.Module:
    """Return what `model_factory()` makes on "meta" or, where it needs values, on "cpu".

    Where it fails on "meta" because it calls a `from_pretrained`, it is called again on "cpu".

    Raises ModelError where it fails, makes something else, or returns a model that was there
    before (which only "meta" shows); OptionError for another device.
    """
    if device not in ("meta", "cpu"):
        raise OptionError(f"skeleton: needs 'meta' or 'cpu', not {device!r}")
    if not callable(model_factory):
        raise OptionError(
            f"model_factory: needs a callable without arguments that makes the float model, not "
            f"{type(model_factory).__name__}"
        )
    try:
        with _without_values() if device == "meta" else contextlib.nullcontext():
            model = model_factory()
    except Exception as error:
        if device == "meta" and _loads_weights(error):
            return skeleton(model_factory, "cpu")
        raise ModelError(_failure(error, device)) from error
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"model_factory returned {type(model).__name__}; needs the float model, an nn.Module"
        )
    if device == "meta" and _has_values(model):
        raise ModelError(
            f"model_factory returned a {type(model).__name__} whose weights have values, though it "
            "ran on device meta. It must build a new model in each call, as this one's layers are "
            "replaced: def build(): return MyModel(config). Where it does build a new one, but "
            "cannot without values, pass skeleton='cpu'"
        )
    return model


@contextlib.contextmanager
def _without_values() -> Iterator[None]:
    """Make modules on device meta in this context.

    Weights that a factory loads are left out without a warning for each of them.
    """
    with warnings.catch_warnings(), _Skeleton():
        warnings.filterwarnings("ignore", _NOT_COPIED, UserWarning)
        yield


def _loads_weights(error: BaseException) -> bool:
    """Tell whether the error is of a `from_pretrained`, which refuses to read weights onto meta."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(frame.name == "from_pretrained" for frame in frames)


def _has_values(model: nn.Module) -> bool:
    """Tell whether it has weights and none is on meta. Quantized layers hold theirs in buffers."""
    some = False
    for weight in _weights(model):
        if weight.is_meta:  # mostly the first
            return False
        some = True
    return some


def _weights(model: nn.Module) -> Iterator[Tensor]:
    for module in model.modules():
        yield from module.parameters(recurse=False)
        if isinstance(module, QuantizedModule):
            yield from module.buffers(recurse=False)


def _failure(error: Exception, device: str) -> str:
    what = f"{type(error).__name__}: {error} ({blamed(error)})"
    if device == "cpu":
        return f"model_factory fails: {what}"
    return (
        f"model_factory fails on device meta, where tensors have shapes but no values: {what}. It "
        "must only build the model: no weights need be read, and no value asked of a tensor. Where "
        "that cannot be helped, pass skeleton='cpu': the model is then built with memory for its "
        "float weights"
    )


def blamed(error: BaseException) -> str:
    """File, line and function of the last call outside of torch that led to the error."""
    frames = traceback.extract_tb(error.__traceback__)
    outside = [f for f in frames if not f.filename.startswith((_TORCH, __file__))]
    last = (outside or frames)[-1]
    return f"{last.filename}:{last.lineno}, in {last.name}"


class _Skeleton(DeviceContext):
    """`torch.device("meta")`, and skips what would only fill meta tensors with values, half of the
    time a model takes. One mode, not one in another: each costs every call of a function."""

    def __init__(self) -> None:
        super().__init__(torch.device("meta"))

    # On top of what is there, as `with torch.device(..)` has it; DeviceContext's go to the bottom.
    __enter__ = TorchFunctionMode.__enter__
    __exit__ = TorchFunctionMode.__exit__

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if kwargs is None:
            kwargs = {}
        if func in _FILLS or getattr(func, "__module__", "") == "torch.nn.init":
            tensor = args[0] if args else kwargs.get("tensor")
            if isinstance(tensor, Tensor) and tensor.is_meta:
                return tensor
        return super().__torch_function__(func, types, args, kwargs)
