"""The ONNX files that a model becomes, with the names of optimum's: of files, inputs and outputs.

BertModel                       model.onnx: input_ids, attention_mask -> last_hidden_state
BertForQuestionAnswering        model.onnx: .. -> start_logits, end_logits
LlamaForCausalLM                model.onnx, T5, Whisper: three files (`export_decoders.py`)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from octavo.errors import ModelError
from octavo.torch.run.calls import takes
from octavo.torch.run.tasks import Task

BATCH, LENGTH = "batch_size", "sequence_length"
TEXT_AXES = {0: BATCH, 1: LENGTH}
Example = Mapping[str, Tensor]
Axes = dict[int, str]


@dataclass(frozen=True)
class Part:
    """One file: `module` takes the tensors of an example, in their order, and gives `outputs`.

    `examples` are calls of it: the first is traced, all are compared. `axes` names open sizes.
    """

    file: str
    module: nn.Module
    examples: Sequence[Example]
    outputs: tuple[str, ...]
    axes: Mapping[str, Axes]


class Named(nn.Module):
    """Tensors by position in, a tuple of tensors out: `call(model, tensors by name)`."""

    def __init__(
        self,
        model: nn.Module,
        names: Sequence[str],
        call: Callable[[Any, dict[str, Tensor]], tuple[Tensor, ...]],
    ) -> None:
        super().__init__()
        self.model, self.names, self.call = model, tuple(names), call

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return what `call` makes of the model and the tensors by name."""
        return self.call(self.model, dict(zip(self.names, tensors, strict=True)))


_OUTPUTS = {
    Task.FEATURES: ("last_hidden_state",),
    Task.ANSWERS: ("start_logits", "end_logits"),
}


def encoder_parts(model: Any, task: Task) -> list[Part]:
    """Return the one file of a model that is called once: an encoder, with a head or without."""
    outputs = _OUTPUTS.get(task, ("logits",))
    examples, axes = _encoder_examples(model)

    def call(of: Any, given: dict[str, Tensor]) -> tuple[Tensor, ...]:
        found = of(**given)
        return tuple(found[name] for name in outputs)

    module = Named(model, tuple(examples[0]), call)
    return [Part("model.onnx", module, examples, outputs, axes)]


def tokens(model: Any, batch: int, length: int, seed: int = 0) -> Tensor:
    """Token ids, int64 [batch, length], of the model's vocabulary."""
    config = model.config.get_text_config()
    made = torch.Generator().manual_seed(seed)
    least = min(5, config.vocab_size - 1)
    return torch.randint(least, config.vocab_size, (batch, length), generator=made)


def mask(batch: int, length: int) -> Tensor:
    """Build a mask, int64 [batch, length]; the last row ends in two tokens of padding, marked 0."""
    found = torch.ones(batch, length, dtype=torch.int64)
    found[-1, max(1, length - 2) :] = 0
    return found


def _encoder_examples(model: Any) -> tuple[list[Example], dict[str, Axes]]:
    if takes(model, "input_ids"):
        given = [_text(model, batch, length) for batch, length in ((2, 9), (3, 21))]
        return given, dict.fromkeys(given[0], TEXT_AXES)
    if takes(model, "pixel_values"):
        config = model.config
        edge = getattr(config, "image_size", 224)
        height, width = (edge, edge) if isinstance(edge, int) else tuple(edge)
        images = [
            torch.randn(
                (batch, getattr(config, "num_channels", 3), height, width),
                generator=torch.Generator().manual_seed(batch),
            )
            for batch in (2, 3)
        ]
        return [{"pixel_values": x} for x in images], {"pixel_values": {0: BATCH}}
    names = ", ".join(inspect.signature(model.forward).parameters)
    raise ModelError(
        f"{type(model).__name__} is called with {names}, of which Octavo makes no folder yet; "
        "export it with octavo.torch.export_onnx"
    )


def _text(model: Any, batch: int, length: int) -> Example:
    found = {"input_ids": tokens(model, batch, length, seed=length)}
    if takes(model, "attention_mask"):
        found["attention_mask"] = mask(batch, length)
    if takes(model, "token_type_ids") and getattr(model.config, "type_vocab_size", 0) > 1:
        found["token_type_ids"] = (torch.arange(length) >= length // 2).long().repeat(batch, 1)
    return found
