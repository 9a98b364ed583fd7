"""Which front end a model belongs to. Loads it when a model is given, and not before."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.core.packages import CHECKPOINTS, GGUF, need
from octavo.errors import ModelError, OptionError
from octavo.files.checkpoints import is_gguf, names_checkpoint, refuse_without_weights

if TYPE_CHECKING:
    from octavo.results.target import Target

_FACTORY = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")
_TARGET_METHODS = ("fingerprint", "decisions", "build", "save", "made_up", "errors")


def names_factory(text: str) -> bool:
    """Tell whether `text` has the form `package.module:factory` and is no file's name."""
    return _FACTORY.fullmatch(text) is not None and not os.path.lexists(text)


def names_torch(text: str) -> bool:
    """Tell whether `text` names a PyTorch model: `module:factory`, or a checkpoint."""
    return names_factory(text) or names_checkpoint(text)


def refuse_gguf(text: str) -> None:
    """Raise ModelError where `text` is a GGUF file, which nobody can tune."""
    if is_gguf(text):
        raise ModelError(
            f"{text} is a GGUF file, whose weights are integers already: there is nothing to "
            "tune. octavo quantize keeps them; give the float checkpoint to search for a recipe"
        )


def target_of(model: Any, **options: Any) -> Target:
    """Return what tuning needs of `model`, whichever front end it belongs to.

    `model` is an ONNX file's path or a ModelProto, a PyTorch module, `module:factory` (a callable
    without arguments that returns one), a checkpoint's folder or name, or a target already.
    `options` are those of `octavo.onnx.OnnxTarget` (target, cpu, quant_format, threads,
    sess_options, custom_ops) or `octavo.torch.TorchTarget` (example_inputs); one that the front end
    does not have is an OptionError.
    """
    if all(hasattr(model, name) for name in _TARGET_METHODS):
        _options("a target, which has its own", options, ())
        return model  # type: ignore[no-any-return]
    if isinstance(model, (str, Path)):
        refuse_gguf(str(model))
    if _is_module(model) or (isinstance(model, str) and names_torch(model)):
        need_torch(model)
        given = _options("a PyTorch model", options, ("example_inputs",))
        if isinstance(model, str) and names_checkpoint(model):
            from octavo.torch.tuning.checkpoint_target import CheckpointTarget

            return CheckpointTarget(model, **given)
        from octavo.torch import TorchTarget

        return TorchTarget(model, **given)
    if isinstance(model, (str, Path, os.PathLike)) or hasattr(model, "SerializeToString"):
        from octavo.onnx import OnnxTarget

        known = ("target", "cpu", "quant_format", "threads", "sess_options", "custom_ops")
        return OnnxTarget(model, **_options("an ONNX model", options, known))
    raise ModelError(
        f"model is a {type(model).__name__}; give the path of an ONNX file, a ModelProto, a "
        "torch.nn.Module, or module:factory"
    )


def need_torch(*models: Any) -> None:
    """Raise ModelError where PyTorch is missing, or what else checkpoints among `models` need.

    A checkpoint without weights is refused first: a package helps nobody whose folder has none.
    """
    named = [str(model) for model in models if isinstance(model, (str, Path))]
    if any(map(is_gguf, named)):
        need("GGUF files need", *GGUF)
    elif checkpoints := [name for name in named if names_checkpoint(name)]:
        for name in checkpoints:
            refuse_without_weights(name)
        need("checkpoints need", *CHECKPOINTS)
    else:
        need("PyTorch models need", "torch")


def _is_module(model: Any) -> bool:
    """Tell whether it is a torch.nn.Module, found without importing torch."""
    return any(
        kind.__name__ == "Module" and kind.__module__ == "torch.nn.modules.module"
        for kind in type(model).__mro__
    )


def _options(what: str, given: dict[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    found = {key: value for key, value in given.items() if value is not None}
    for key in found:
        if key not in known:
            raise OptionError(f"{key} is not for {what}. Known: {', '.join(known) or '(none)'}")
    return found
