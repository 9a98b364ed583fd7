"""all-MiniLM-L6 as a PyTorch module and as float32 ONNX files, both from the fetched checkpoint."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from benchmarks.zoo.export import cached, quiet, versions
from benchmarks.zoo.minilm_text import INPUT_NAMES, lee_documents, model_dir, tokenize
from benchmarks.zoo.sessions import Array, Feed, open_session

if TYPE_CHECKING:
    import torch


Exporter = Literal["torchscript", "dynamo"]

_TOLERANCE = 1e-4  # hidden states are of order 1; a wrong mask or position shows as 0.1 and more
_RECIPE = 1  # raise when the export below changes, so that nobody reads an older file


def torch_model(attention: str = "eager") -> torch.nn.Module:
    """Float32 ``transformers.BertModel`` in eval mode, without the pooler that no embedding uses.

    ``attention`` "eager" has an explicit MatMul and Softmax, as most published ONNX files; "sdpa"
    is what ``from_pretrained`` gives.
    """
    from safetensors.torch import load_file

    # Plain load_state_dict instead of from_pretrained: no hub code, no report on the unused pooler.
    model = untrained_model(attention)
    weights = load_file(str(model_dir() / "model.safetensors"))
    wanted = model.state_dict().keys()
    model.load_state_dict(
        {name: value for name, value in weights.items() if name in wanted}, strict=True
    )
    return model.eval()


def untrained_model(attention: str = "eager") -> torch.nn.Module:
    """The module of `torch_model()` as its class makes it, in training mode."""
    from transformers import BertConfig, BertModel

    config = BertConfig.from_pretrained(
        str(model_dir()), local_files_only=True, attn_implementation=attention
    )
    return BertModel(config, add_pooling_layer=False)


def torch_hidden_states(model: torch.nn.Module, feed: Feed) -> Array:
    """Hidden states, float32 ``[batch, tokens, 384]``, of ``torch_model()``, quantized or not."""
    import torch

    with torch.inference_mode():
        result: Array = model(**{name: torch.from_numpy(feed[name]) for name in INPUT_NAMES})[
            0
        ].numpy()
    return result


def onnx_path(exporter: Exporter = "torchscript") -> Path:
    """Path of the float32 model (90 MB), exported now if the cache lacks it.

    Inputs ``input_ids``, ``attention_mask``, ``token_type_ids``: int64 ``[batch, sequence]``, both
    free; output ``last_hidden_state``: float32 ``[batch, sequence, 384]``. The file is compared
    with PyTorch on padded documents before anybody sees it; ``RuntimeError`` if they differ by more
    than 1e-4.
    """
    name = f"minilm-{exporter}-{versions('torch', 'transformers')}-r{_RECIPE}.onnx"
    return cached(name, partial(_export_checked, exporter))


def _export_checked(exporter: Exporter, path: Path) -> None:
    model = torch_model()
    with quiet():
        _export(model, exporter, path)
    _check(model, path)


def _export(model: torch.nn.Module, exporter: Exporter, path: Path) -> None:
    import torch

    # A mask with zeros, so that no tracer concludes that masking can be left out.
    example = {
        name: torch.from_numpy(value)
        for name, value in tokenize(["one", "and one longer text"]).items()
    }
    axes = {0: "batch", 1: "sequence"}
    options: dict[str, Any]
    if exporter == "torchscript":
        shapes = dict.fromkeys((*INPUT_NAMES, "last_hidden_state"), axes)
        options = {"dynamo": False, "opset_version": 17, "dynamic_axes": shapes}
    else:
        dims = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence", max=512)}
        options = {"dynamo": True, "dynamic_shapes": dict.fromkeys(INPUT_NAMES, dims)}
        options |= {"external_data": False, "verbose": False}
    with torch.no_grad():
        torch.onnx.export(
            _hidden_states_only(model),
            tuple(example[name] for name in INPUT_NAMES),
            str(path),
            input_names=list(INPUT_NAMES),
            output_names=["last_hidden_state"],
            **options,
        )


def _hidden_states_only(model: torch.nn.Module) -> torch.nn.Module:
    import torch

    class HiddenStates(torch.nn.Module):  # type: ignore[misc]
        """Positional inputs in, one tensor out: both exporters name those reliably."""

        def __init__(self) -> None:
            super().__init__()
            self.bert = model

        def forward(
            self,
            input_ids: torch.Tensor,
            attention_mask: torch.Tensor,
            token_type_ids: torch.Tensor,
        ) -> torch.Tensor:
            found = self.bert(
                input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
            )
            hidden: torch.Tensor = found.last_hidden_state
            return hidden

    return HiddenStates().eval()


def _check(model: torch.nn.Module, path: Path) -> None:
    session = open_session(path)
    documents = lee_documents()
    for texts in (documents[:4], documents[4:5], ["hi", "a few words more", *documents[:1]]):
        feed = tokenize(texts)
        real = feed["attention_mask"] == 1
        difference = session.run(None, feed)[0][real] - torch_hidden_states(model, feed)[real]
        worst = float(np.abs(difference).max())
        if not worst < _TOLERANCE:
            raise RuntimeError(
                f"the export {path.name} differs from PyTorch by {worst:.2g} (limit {_TOLERANCE})"
            )
