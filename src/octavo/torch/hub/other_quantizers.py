"""Folders that others quantized: `from_pretrained(path, quantization_config=OctavoConfig())`.

`transformers` refuses a configuration of another method than the folder's own. With this, it asks
Octavo, which reads compressed-tensors, GPTQ, AWQ and auto-round, and refuses others by name.
Without an OctavoConfig, nothing changes: the folder's own library loads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers.quantizers.auto import AutoHfQuantizer

from octavo.core.packages import all_of
from octavo.errors import AlreadyQuantizedError, ModelError
from octavo.torch.hub.compressed_scheme import NAME, CompressedConfig
from octavo.torch.hub.config import METHOD, OctavoConfig
from octavo.torch.hub.gptq_scheme import AUTO_ROUND, AWQ, GPTQ, GptqConfig

_INSTEAD: Mapping[str, str] = {
    "torchao": "torchao stores its own tensor types",
    "bitsandbytes": "LLM.int8 computes outliers in float16, which no int8 layer here does",
}
"""Why a method's folders are not read, where more is known than its name."""


def read_foreign(stored: Any, given: OctavoConfig) -> OctavoConfig:
    """Return what `given` becomes for a folder whose `quantization_config` is `stored`.

    Raises AlreadyQuantizedError for a method that Octavo does not read, and ModelError for a
    scheme that it does not compute.
    """
    data: Mapping[str, Any] = stored if isinstance(stored, Mapping) else stored.to_dict()
    method = getattr(data.get("quant_method"), "value", data.get("quant_method"))
    if method == NAME:
        return given.for_foreign(CompressedConfig.from_dict(data))
    if method in (GPTQ, AWQ, AUTO_ROUND):
        return given.for_foreign(GptqConfig.from_dict(data))
    why = _INSTEAD.get(str(method), "Octavo does not read its weights")
    raise AlreadyQuantizedError(
        f"the checkpoint is quantized already, by {method}: {why}. Give the float checkpoint it "
        "was made of and quantization_config=OctavoConfig(), or leave quantization_config out and "
        f"have {method} load it"
    )


def ask_octavo() -> None:
    """Has `transformers` ask `read_foreign` where somebody passes an OctavoConfig."""
    merge = AutoHfQuantizer.merge_quantization_configs

    def merged(quantization_config: Any, quantization_config_from_args: Any) -> Any:
        if isinstance(quantization_config_from_args, OctavoConfig):
            if not _is_ours(quantization_config):
                return read_foreign(quantization_config, quantization_config_from_args)
            _refuse_other(quantization_config, quantization_config_from_args)
            quantization_config_from_args = None  # of which transformers would warn
        return merge(quantization_config, quantization_config_from_args)

    AutoHfQuantizer.merge_quantization_configs = staticmethod(merged)


def refuse_without_method(config: Any) -> None:
    """Raise ModelError where a folder's config.json has a `quantization_config` of no method."""
    stored = getattr(config, "quantization_config", None)
    method = stored.get("quant_method") if isinstance(stored, Mapping) else ""
    if not isinstance(getattr(method, "value", method), str):
        raise ModelError(
            f"{config.name_or_path}: config.json is damaged: quantization_config.quant_method is "
            f"{method!r}; copy the folder again, whole"
        )


def _refuse_other(stored: Any, given: OctavoConfig) -> None:
    """Raise AlreadyQuantizedError where Octavo made the folder otherwise than `given` asks for."""
    here = OctavoConfig(**stored) if isinstance(stored, Mapping) else stored
    wrong = ["recipe"] if given.recipe != here.recipe else []
    wrong += ["skip"] if given.skip and given.skip != here.skip else []
    wrong += ["format"] if given.layout != here.layout else []
    if wrong:
        raise AlreadyQuantizedError(
            f"the checkpoint is quantized already, by Octavo with recipe {here.recipe.name!r}, and "
            f"quantization_config asks for another {all_of(wrong)}: leave it out, and the folder "
            "is loaded as it is, or give the float checkpoint"
        )


def _is_ours(stored: Any) -> bool:
    method = stored.get("quant_method") if isinstance(stored, Mapping) else stored.quant_method
    return bool(method == METHOD)
