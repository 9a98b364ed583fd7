"""The quantizer that `transformers` asks for the method `octavo`. Importing this registers it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.core_model_loading import ConversionOps
from transformers.quantizers.auto import (
    AUTO_QUANTIZER_MAPPING,
    register_quantization_config,
    register_quantizer,
)
from transformers.quantizers.base import HfQuantizer

import octavo
from octavo.core.attention_type import AttentionType
from octavo.errors import ModelError, OctavoError, OptionError
from octavo.torch.blocks.fast_path import leave_fast_paths
from octavo.torch.blocks.find import fused
from octavo.torch.hub.aligned_files import REPORT_KEY, VERSION_KEY, write_aligned
from octavo.torch.hub.config import METHOD, OctavoConfig, WeightLayout
from octavo.torch.hub.folders import (
    StoredLayers,
    check_files,
    described,
    file_metadata,
    report_in,
)
from octavo.torch.hub.gptq_scheme import GptqConfig
from octavo.torch.hub.guard import GUARD_KEY, guards, pass_over
from octavo.torch.hub.headers import file_tensors
from octavo.torch.hub.other_quantizers import ask_octavo
from octavo.torch.layers.base import REPORT, held_report

if TYPE_CHECKING:
    from octavo.torch.hub.gguf_layers import GgufLayers
    from octavo.torch.hub.other_folders import ForeignLayers
    from octavo.torch.hub.streaming import StreamedQuantization


class OctavoQuantizer(HfQuantizer):
    """Quantizes a checkpoint while it is loaded, or loads and saves one that is quantized."""

    quantization_config: OctavoConfig
    saves_quantized = True
    """Whether `save_pretrained` writes what Octavo quantized, so that it can be read again."""

    def __init__(self, quantization_config: OctavoConfig, **kwargs: Any) -> None:
        super().__init__(copy.copy(quantization_config), **kwargs)
        self._streamed: StreamedQuantization | None = None
        self._stored: StoredLayers | ForeignLayers | GgufLayers | None = None
        self._failure: OctavoError | None = None

    def validate_environment(self, *args: Any, device_map: Any = None, **kwargs: Any) -> None:
        """Raise OptionError for a `device_map` to a place where quantized layers do not run."""
        places = device_map.values() if isinstance(device_map, dict) else [device_map]
        for place in places:
            kind = str(place).partition(":")[0]
            if kind.isdecimal() or kind in ("cuda", "xpu", "mps", "npu", "disk", "meta"):
                raise OptionError(
                    f"device_map: {place!r}; layers that Octavo quantized run on the CPU: leave it "
                    "out, or pass device_map='cpu'"
                )

    def _process_model_before_weight_loading(
        self, model: Any, checkpoint_files: Sequence[str] | None = None, **kwargs: Any
    ) -> None:
        config, files = self.quantization_config, list(checkpoint_files or ())
        tied = dict(model.all_tied_weights_keys)
        metadata = check_files(files)
        older = None if self.pre_quantized or config.foreign else _of_old(files)
        if older is not None:
            self.quantization_config = config = config.for_foreign(older)
        if config.foreign is not None:
            from octavo.torch.hub.other_folders import ForeignLayers

            self._stored = ForeignLayers(model, config.foreign, files)
            forget_tied(model)
        elif self.pre_quantized:
            self._stored = StoredLayers(model, config, files)
            forget_tied(model)
            pass_over(model, metadata)
            if REPORT_KEY in metadata:
                model.__dict__[REPORT] = partial(report_in, metadata[REPORT_KEY])
        else:
            from octavo.torch.hub.streaming import StreamedQuantization

            recipe = config.recipe
            self._streamed = StreamedQuantization(
                model, recipe, config.skip, config.layout, tied, files
            )

    def param_needs_quantization(self, model: Any, param_name: str, **kwargs: Any) -> bool:
        """Tell whether the tensor belongs to a layer that is quantized when it is there."""
        return self._streamed is not None and self._streamed.takes(param_name)

    def get_quantize_ops(self) -> ConversionOps:
        """Return what `transformers` calls with a tensor of a layer that is to be quantized."""
        return _Take(self)

    def take(self, tensors: dict[str, Any], missing: set[str] | None) -> dict[str, Any]:
        """Hands the tensors to their layers; returns those that `transformers` is to place."""
        assert self._streamed is not None
        if missing is not None:
            self._streamed.missing = missing
        left = {}
        for name, value in tensors.items():
            tensor: Tensor = value[0] if isinstance(value, list) else value
            try:
                taken = self._streamed.takes(name) and self._streamed.take(name, tensor)
            except (OctavoError, ValueError) as error:  # else transformers would only log it
                ours = error if isinstance(error, OctavoError) else ModelError(str(error))
                self._failure, taken = self._failure or ours, True
            if not taken:
                left[name] = tensor
            elif missing is not None:
                missing.discard(name)
        return left

    def _process_model_after_weight_loading(self, model: Any, **kwargs: Any) -> Any:
        if self._failure is not None:
            raise self._failure
        attention = AttentionType.stated(self.quantization_config.recipe.to_dict())
        if self._streamed is not None:
            from octavo.torch.reports import positions_note, vectors_note

            report = self._streamed.finish()
            said = (*vectors_note(model), *positions_note(model))
            notes = (*fused(model, attention), *said)
            model.__dict__[REPORT] = replace(report, notes=(*report.notes, *notes))
        else:
            assert self._stored is not None
            found = self._stored.finish(model)
            if found is not None:
                model.__dict__[REPORT] = found
            leave_fast_paths(model)
            fused(model, attention)
        self._streamed = self._stored = None
        forget_tied(model)
        return model

    def get_state_dict_and_metadata(self, model: Any) -> tuple[dict[str, Tensor], dict[str, str]]:
        """Return a folder's tensors, each once, and each file's metadata with the report."""
        write_aligned()
        state = model.state_dict()
        config = copy.copy(self.quantization_config)
        config.foreign = None
        if config.layout is WeightLayout.COMPRESSED_TENSORS:
            from octavo.torch.hub.compressed_writing import compressed

            state, data = compressed(model, state, model.dtype)
            model.config.quantization_config = config.as_written(data)
            return state, {VERSION_KEY: octavo.__version__}
        config.layers, config.shared = described(model, state)
        for name in config.shared:
            del state[name]
        model.config.quantization_config = self.quantization_config = config
        guarding = guards(model)
        said = {GUARD_KEY: next(iter(guarding))} if guarding else {}
        return {**state, **guarding}, file_metadata(held_report(model)) | said

    def dequantize(self, model: Any, dtype: Any = None) -> Any:
        """Raise ModelError: a quantized model holds no float weights any more."""
        raise ModelError(
            "dequantize: a model that Octavo quantized holds no float weights any more; load the "
            "float checkpoint, without quantization_config"
        )

    def is_serializable(self, **kwargs: Any) -> bool:
        """Tell whether `save_pretrained` may write the model."""
        return True

    @property
    def is_trainable(self) -> bool:
        """Answers yes: `Trainer` refuses others when it is made, for predict and evaluate too.

        Quantized layers themselves refuse a gradient, with a NotTrainableError.
        """
        return True

    @property
    def is_qat_trainable(self) -> bool:
        """Answer yes, as `is_trainable` does."""
        return True

    @property
    def is_compileable(self) -> bool:
        """Tell whether `generate` may compile the model."""
        return True


def _of_old(files: Sequence[str]) -> GptqConfig | None:
    """Read how a folder of older tools holds its integers, which config.json does not say."""
    ours = [Path(file) for file in files if file.endswith(".safetensors")]
    names = {tensor.name for file in ours for tensor in file_tensors(file)}
    return GptqConfig.of_old(ours[0].parent, names) if ours else None


def forget_tied(model: Any) -> None:
    """Has `transformers` not tie what is held by quantized layers now, each in its own form.

    Neither now nor when somebody asks for it later, as accelerate does.
    """
    known = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    tied = dict(model.all_tied_weights_keys)
    left = {target: source for target, source in tied.items() if {target, source} <= known}
    if left == tied:
        return
    model.all_tied_weights_keys = left
    for name, part in model.named_modules():
        if getattr(part, "_tied_weights_keys", None):
            before = f"{name}." if name else ""
            part._tied_weights_keys = {
                target.removeprefix(before): source.removeprefix(before)
                for target, source in left.items()
                if target.startswith(before) and source.startswith(before)
            }


class _Take(ConversionOps):
    """The operation on tensors that arrive for layers which are to be quantized."""

    def __init__(self, quantizer: OctavoQuantizer) -> None:
        self._quantizer = quantizer

    def convert(
        self, input_dict: dict[str, Any], *args: Any, missing_keys: Any = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Return what is left of `input_dict` for `transformers` to place."""
        with torch.no_grad():
            return self._quantizer.take(input_dict, missing_keys)


if METHOD not in AUTO_QUANTIZER_MAPPING:
    register_quantization_config(METHOD)(OctavoConfig)
    register_quantizer(METHOD)(OctavoQuantizer)
    ask_octavo()
