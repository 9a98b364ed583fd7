"""`module:factory`: PyTorch models by the name of the callable that makes them."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from types import ModuleType
from typing import Any

from torch import nn

from octavo.errors import ModelError, did_you_mean
from octavo.torch.skeleton import blamed


def made_by(text: str) -> nn.Module:
    """What the callable named `text` returns; modules in the current folder are found.

    Raises ModelError, which says what does not exist, is not callable, fails or is no model.
    """
    module_name, _, path = text.partition(":")
    module = _module(text, module_name)
    found: Any = module
    done = module_name
    for part in path.split("."):
        if not hasattr(found, part):
            known = [name for name in dir(found) if not name.startswith("_")]
            raise ModelError(f"{text}: {done} has no {part!r}.{did_you_mean(part, known)}")
        found, done = getattr(found, part), f"{done}.{part}"
    if not callable(found) or isinstance(found, nn.Module):
        hint = f"; write a function that returns it: def make(): return {path}"
        raise ModelError(
            f"{text} is of type {type(found).__name__}; needs a callable without arguments that "
            f"returns the float model{hint if isinstance(found, nn.Module) else ''}"
        )
    try:
        model = found()
    except (Exception, SystemExit) as error:
        raise ModelError(f"{text} fails: {_last(error)}") from error
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"{text} returned {type(model).__name__}; needs the float model, a torch.nn.Module"
        )
    return model


def _module(text: str, name: str) -> ModuleType:
    here = os.getcwd()  # noqa: PTH109 - as sys.path has it
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ModelError(f"{text}: importing {name} fails: {_last(error)}") from error
        hint = " Leave .py out." if name.endswith(".py") else ""
        raise ModelError(
            f"{text}: there is no module {error.name!r}, neither in the current folder {here} nor "
            f"installed.{hint}"
        ) from None
    except (Exception, SystemExit) as error:
        raise ModelError(f"{text}: importing {name} fails: {_last(error)}") from error


def _last(error: BaseException) -> str:
    """The last line of the error's traceback, and where it comes from."""
    line = "".join(traceback.format_exception_only(error)[-1]).strip()
    if isinstance(error, SyntaxError):
        return f"{line} ({error.filename}:{error.lineno})"
    return f"{line} ({blamed(error)})"
