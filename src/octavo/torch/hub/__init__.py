"""Checkpoints of the Hugging Face hub, quantized while they are loaded, and exported to ONNX.

    AutoModel.from_pretrained(path, quantization_config=OctavoConfig(recipe="int8"))
    octavo.torch.hub.load_gguf("model.gguf")
    octavo.torch.hub.export(model_or_path, folder)

Importing this, or `octavo.torch`, registers the method `octavo` with `transformers`, and adapters
for its layers with PEFT: at once where those are loaded, else as soon as they are. Nothing of them
is imported before it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from octavo.torch.hub.registration import register as _register

if TYPE_CHECKING:
    from octavo.torch.hub.config import OctavoConfig as OctavoConfig
    from octavo.torch.hub.export_folder import export as export
    from octavo.torch.hub.gguf_checkpoint import load_gguf as load_gguf

_register(
    {
        "transformers.quantizers.auto": "octavo.torch.hub.quantizer",
        "transformers.modeling_utils": "octavo.torch.hub.modeling",
        "transformers.modeling_gguf_pytorch_utils": "octavo.torch.hub.gguf_metadata",
        "peft.tuners.lora.model": "octavo.torch.hub.adapters",
    }
)
del _register

_HOME = {
    "OctavoConfig": "octavo.torch.hub.config",
    "export": "octavo.torch.hub.export_folder",
    "load_gguf": "octavo.torch.hub.gguf_checkpoint",
}

__all__ = ["OctavoConfig", "export", "load_gguf"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        known = ", ".join(__all__)
        raise AttributeError(f"module 'octavo.torch.hub' has no attribute {name!r}; it has {known}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
