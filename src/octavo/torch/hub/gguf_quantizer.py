"""`from_pretrained(folder, gguf_file=..., quantization_config=OctavoConfig())`.

transformers refuses a GGUF file together with a quantization of another kind. With this, it asks
Octavo, which reads the file itself. Without an OctavoConfig, nothing changes.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch

from octavo.checkpoints.gguf_file import GgufFile, open_gguf
from octavo.errors import OptionError
from octavo.torch.hub.config import OctavoConfig
from octavo.torch.hub.gguf_config import complete
from octavo.torch.hub.other_quantizers import refuse_without_method
from octavo.torch.hub.quantizer import OctavoQuantizer, forget_tied


class GgufQuantizer(OctavoQuantizer):
    """Fills a model from a GGUF file, and saves it as other models of Octavo."""

    def __init__(self, config: Any, quantization_config: OctavoConfig, **kwargs: Any) -> None:
        super().__init__(quantization_config, pre_quantized=True, **kwargs)
        self._config = config
        self._file: GgufFile | None = None
        self._dtype = torch.float32
        self._tensors: dict[str, Any] = {}

    def read_header(self, gguf_file: str) -> None:
        """Read the file's header; transformers calls this once it knows where the file is.

        Raises OptionError for a recipe with a limit of bits or bytes, and ModelError as `complete`.
        """
        path = Path(gguf_file)
        self.quantization_config.refuse_limits(path.name, "llama.cpp")
        self._file = open_gguf(gguf_file)
        complete(self._config, self._file)

    def update_dtype(self, dtype: torch.dtype | None) -> torch.dtype:
        """Set and return the dtype of floats: float32, if nobody says."""
        self._dtype = torch.float32 if dtype is None else dtype
        return self._dtype

    def update_weight_conversions(self, weight_conversions: Any, model: Any) -> list[Any]:
        """Return no conversions: tensors come under the model's names, and in its shapes."""
        return []

    def get_new_dtype(self, converter: Any, param: Any, dtype: Any) -> None:
        """Return None: tensors come in their dtypes."""
        return

    def _process_model_before_weight_loading(
        self, model: Any, checkpoint_files: Any = None, **kwargs: Any
    ) -> None:
        from octavo.torch.hub.gguf_layers import GgufLayers
        from octavo.torch.hub.streaming import skipping
        from octavo.torch.replace.inventory import inventory

        assert self._file is not None
        config = self.quantization_config
        recipe = skipping(config.recipe, inventory(model), config.skip)
        self._stored = layers = GgufLayers(model, self._file, recipe, self._dtype)
        self._tensors = layers.tensors
        forget_tied(model)

    def get_state_dict(self, checkpoint_file: str, model: Any) -> dict[str, Any]:
        """Hand over the tensors that fill the model."""
        found, self._tensors = self._tensors, {}
        return found


def ask_octavo_for_gguf() -> None:
    """Has `transformers` ask Octavo for the quantizer where somebody passes both."""
    modeling_utils: Any = importlib.import_module("transformers.modeling_utils")
    plain = modeling_utils.get_hf_quantizer

    def chosen(
        config: Any,
        quantization_config: Any,
        device_map: Any,
        *args: Any,
        gguf_file: str | None = None,
        **kwargs: Any,
    ) -> Any:
        if isinstance(quantization_config, str):
            raise OptionError(
                f"quantization_config={quantization_config!r} is a str; give an object: "
                f"OctavoConfig(recipe={quantization_config!r})"
            )
        if gguf_file is None or not isinstance(quantization_config, OctavoConfig):
            if isinstance(quantization_config, OctavoConfig):
                refuse_without_method(config)
            given = {} if gguf_file is None else {"gguf_file": gguf_file}
            return plain(config, quantization_config, device_map, *args, **given, **kwargs)
        made = GgufQuantizer(config, quantization_config)
        made.validate_environment(device_map=device_map)
        config.quantization_config = made.quantization_config
        return made, config, device_map

    modeling_utils.get_hf_quantizer = chosen


ask_octavo_for_gguf()
