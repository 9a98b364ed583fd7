"""Checkpoints of the Hugging Face hub, quantized while they are loaded, and exported to ONNX.

    AutoModel.from_pretrained(path, quantization_config=OctavoConfig(recipe="int8"))
    octavo.torch.hub.load_gguf("model.gguf")
    octavo.torch.hub.export(model_or_path, folder)

Importing this, or `octavo.torch`, registers the method `octavo` with `transformers`, and adapters
for its layers with PEFT: at once where those are loaded, else as soon as they are. Nothing of them
is imported before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from octavo.core.lazy import lazy as _lazy
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

__all__, __getattr__ = _lazy(
    __name__,
    {
        "octavo.torch.hub.config": "OctavoConfig",
        "octavo.torch.hub.export_folder": "export",
        "octavo.torch.hub.gguf_checkpoint": "load_gguf",
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
