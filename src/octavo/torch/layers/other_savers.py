"""Other libraries' ways to save a model, which would lose what is quantized: they raise.

`save_pretrained` writes the tensors and the name of a float class. Loaded again, that finds none of
its weights in the folder and makes random ones.
"""

from __future__ import annotations

import sys
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from octavo.errors import ModelError

_METHODS: Mapping[str, tuple[str, ...]] = {
    "transformers": ("save_pretrained", "push_to_hub"),
    "sentence_transformers": ("save_pretrained", "save", "push_to_hub", "save_to_hub"),
    "huggingface_hub": ("save_pretrained", "push_to_hub"),
    "diffusers": ("save_pretrained", "push_to_hub"),
}
"""By library. Libraries that save adapters alone (peft) are not among them."""

_WITHIN = ("_save_pretrained", "save_torch_weights")  # what those call
_TRAINER = ("save_model", "_save")  # of transformers.trainer: a plain module's own state

_ADAPTERS = "peft"
"""Saves adapters alone, within the trainer's methods too."""


@dataclass(frozen=True)
class Refusal:
    """Stands in a model's own `__dict__` for a method of its class; copies and pickles have it."""

    method: str

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Raise ModelError, which names the method."""
        raise _lost(self.method)


# docs/notes/torch.md: "What other libraries write would be lost"
def refuse_other_savers(model: nn.Module, quantized: type) -> None:
    """Has those methods raise, of `model` and all in it that hold layers of type `quantized`.

    A method that a user's class overrides stays.
    """
    for module in model.modules():
        holds = any(isinstance(part, quantized) for part in module.modules())
        if not holds or _writes_quantized(module):
            continue
        for name in _methods_of(type(module)):
            module.__dict__[name] = Refusal(f"{type(module).__name__}.{name}")


def _methods_of(kind: type) -> list[str]:
    found = []
    for name in {name for names in _METHODS.values() for name in names}:
        owner = next((base for base in kind.__mro__ if name in vars(base)), None)
        if owner is not None and name in _METHODS.get(_library(owner.__module__), ()):
            found.append(name)
    return found


_checked: Any = None
"""Refers to the last state that was asked for without one of those methods."""


def check_savers(state: Any) -> None:
    """Raise ModelError where a saving method of another library asks for a quantized layer's state.

    Such a method may be that of a module around the quantized model. `state` is the dictionary that
    is being filled: all layers of one model fill the same, of which the first looks.
    """
    global _checked  # noqa: PLW0603
    if _checked is not None and _checked() is state:
        return
    frame = sys._getframe(1)
    while frame is not None:
        name, module = frame.f_code.co_name, frame.f_globals.get("__name__", "")
        if _library(module) == _ADAPTERS:
            break
        methods = _METHODS.get(_library(module), ())
        if name in methods or (methods and name in _WITHIN):
            if _writes_quantized(frame.f_locals.get("self")):
                break
            raise _lost(name)
        if module == "transformers.trainer" and name in _TRAINER:
            if _writes_quantized(getattr(frame.f_locals.get("self"), "model", None)):
                break
            raise _lost(f"Trainer.{name}")
        frame = frame.f_back  # type: ignore[assignment]
    # A plain dict cannot be referred to without keeping it alive.
    _checked = weakref.ref(state) if isinstance(state, OrderedDict) else None


def _writes_quantized(model: Any) -> bool:
    """Tell whether Octavo's own quantizer, which can read what it writes, loaded the model."""
    return getattr(getattr(model, "hf_quantizer", None), "saves_quantized", False) is True


def _library(module: str) -> str:
    return module.partition(".")[0]


def _lost(method: str) -> ModelError:
    return ModelError(
        f"{method}: the model holds layers that Octavo quantized, which would load as random "
        "weights from such a folder; write it with octavo.torch.save(model, path), and read it "
        "with octavo.torch.load(path, model_factory). Of transformers, from_pretrained(path, "
        "quantization_config=OctavoConfig()) makes a model that can be saved so"
    )
