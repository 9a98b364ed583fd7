"""Which parameter of a model of transformers a tensor of a GGUF file is, and what undoes the change
that llama.cpp's converter made to it.

blk.0.attn_q.weight   rows of each head in pairs    ->   model.layers.0.self_attn.q_proj.weight
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from octavo.checkpoints.gguf_file import GgufFile, GgufTensor
from octavo.checkpoints.gguf_reader import names_made_once
from octavo.errors import ModelError, typed

Floats = npt.NDArray[Any]

_EXPERTS = re.compile(r"_exps\.|_projs\.")


@dataclass(frozen=True)
class Place:
    """`name` of the parameter; `undo` takes the tensor's values to the parameter's."""

    name: str
    undo: Callable[[Floats], Floats]

    def rows(self, count: int) -> npt.NDArray[np.intp] | None:
        """Return the order of the parameter's rows where only that differs; None where more does.

        The order is tried on numbers of rows, one column of them. Raises ModelError where the
        conversion fails for another reason than that it looks at more columns.
        """
        probe = np.arange(count, dtype=np.float64)[:, None]
        try:
            found = np.asarray(self.undo(probe))
        except (ValueError, IndexError):  # NumPy's and PyTorch's, of axes that are too short
            return None
        except Exception as error:  # whatever transformers' conversions raise
            raise ModelError(
                f"{self.name}: transformers cannot convert it from a GGUF file: "
                f"{typed(error)}; give the float checkpoint"
            ) from error
        if found.shape != probe.shape or not np.array_equal(np.sort(found[:, 0]), probe[:, 0]):
            return None
        return found[:, 0].astype(np.intp)


class GgufNames:
    """The places of a file's tensors in `model`, a skeleton of transformers.

    Raises ModelError for an architecture that transformers cannot read, and one with experts.
    """

    def __init__(self, model: Any, file: GgufFile) -> None:
        self._file = file
        experts = next((t.name for t in file.tensors if _EXPERTS.search(t.name)), None)
        if experts is not None:
            raise ModelError(
                f"{file.path}: {experts} holds experts, which Octavo does not read of GGUF files: "
                "give the float checkpoint, or leave quantization_config out"
            )
        self._place = _newer(model, file) or _older(model, file)

    def place(self, tensor: GgufTensor) -> Place | None:
        """Return where the tensor belongs; None where the model has nothing of the kind."""
        return self._place(tensor.name)


_Find = Callable[[str], "Place | None"]


def _newer(model: Any, file: GgufFile) -> _Find | None:
    """Return what finds places by the tables of transformers' reader of 5.2x.

    Returns None where there is no such reader, or it has not the architecture.
    """
    try:
        from transformers.core_model_loading import WeightConverter, rename_source_key
        from transformers.integrations.gguf.utils import (
            get_gguf_conversion_mapping,
            is_gguf_arch_supported,
        )
    except ImportError:
        return None
    if not is_gguf_arch_supported(file.architecture):
        return None
    mapping = get_gguf_conversion_mapping(file.architecture, model.config)
    converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
    renamings = [entry for entry in mapping if not isinstance(entry, WeightConverter)]
    by_pattern = {pattern: entry for entry in converters for pattern in entry.source_patterns}
    known = {*model.state_dict()}

    def find(name: str) -> Place | None:
        renamed, pattern = rename_source_key(name, renamings, converters)
        if renamed not in known:
            return None
        operations = by_pattern[pattern].operations if pattern in by_pattern else []

        def undo(values: Floats) -> Floats:
            tensors = {name: torch.from_numpy(np.ascontiguousarray(values))}
            for operation in operations:
                tensors = operation.convert(tensors, [name], [name], full_layer_name=name)
            found: Floats = tensors[name].numpy()
            return found

        return Place(renamed, undo)

    return find


def _older(model: Any, file: GgufFile) -> _Find:
    """Return what finds places by gguf's names and the processors of transformers' first reader."""
    from transformers.modeling_gguf_pytorch_utils import (
        TENSOR_PROCESSORS,
        TensorProcessor,
        get_gguf_hf_weights_map,
    )

    processor = TENSOR_PROCESSORS.get(file.architecture, TensorProcessor)(model.config.to_dict())
    try:
        with names_made_once():
            names = get_gguf_hf_weights_map(model, processor, file.architecture)
    except NotImplementedError as error:
        raise ModelError(f"{file.path}: {error}") from None

    def find(name: str) -> Place | None:
        if name not in names:
            return None

        def undo(values: Floats) -> Floats:
            parsed: dict[str, Any] = {"tensors": {}}
            found = processor.process(
                values, name, tensor_key_mapping=names, parsed_parameters=parsed
            )
            if found.name is None:  # it was put where it belongs
                (stored,) = parsed["tensors"].values()
                return np.asarray(stored)
            return np.asarray(found.weights)

        return Place(names[name], undo)

    return find
