"""`module:factory`: PyTorch models by the name of the callable that makes them."""

from __future__ import annotations

from torch import nn

from octavo.errors import ModelError
from octavo.files.lookup import error_line, load_object


def made_by(text: str) -> nn.Module:
    """What the callable named `text` returns; modules in the current folder are found.

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
