"""Small models of transformers with random weights, as both exporters of PyTorch write them."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor, nn

from benchmarks.zoo.export import cached, versions

LAYERS = 2
SIZES = {"hidden_size": 64, "num_hidden_layers": LAYERS}
SIZES |= {"num_attention_heads": 4, "intermediate_size": 96}
TEXT = SIZES | {"vocab_size": 100}
SPEECH: dict[str, Any] = {"d_model": 64, "vocab_size": 100, "use_cache": False}
SPEECH |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
for part in ("encoder", "decoder"):
    SPEECH |= {f"{part}_layers": LAYERS, f"{part}_attention_heads": 4, f"{part}_ffn_dim": 96}


class Made(NamedTuple):
    """A model, and tensors by the names of its arguments."""

    model: nn.Module
    inputs: Mapping[str, Tensor]


def tokens(length: int = 9) -> Tensor:
    return torch.randint(3, 100, (2, length), generator=torch.Generator().manual_seed(1))


def text() -> dict[str, Tensor]:
    """Two texts, one of which is shorter."""
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[1, 6:] = 0
    return {"input_ids": tokens(), "attention_mask": mask}


def image(size: int = 32) -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(2, 3, size, size, generator=torch.Generator())}


def auto(config: Any, attention: str) -> nn.Module:
    found: nn.Module = transformers.AutoModel.from_config(config, attn_implementation=attention)
    return found


def bert(attention: str) -> Made:
    return Made(auto(transformers.BertConfig(**TEXT), attention), text())


def gpt2(attention: str) -> Made:
    sizes = {"n_embd": 64, "n_layer": LAYERS, "n_head": 4, "vocab_size": 100, "use_cache": False}
    config = transformers.GPT2Config(**sizes, bos_token_id=1, eos_token_id=2)
    return Made(auto(config, attention), text())


def llama(attention: str) -> Made:
    config = transformers.LlamaConfig(**TEXT, num_key_value_heads=2, use_cache=False)
    return Made(auto(config, attention), text())


def gemma2(attention: str) -> Made:
    """Softcap, and a window in every second layer."""
    sizes = {"num_key_value_heads": 2, "head_dim": 16, "sliding_window": 4, "use_cache": False}
    return Made(auto(transformers.Gemma2Config(**TEXT, **sizes), attention), text())


def t5(attention: str) -> Made:
    sizes = {"d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": LAYERS, "num_heads": 4}
    config = transformers.T5Config(**sizes, vocab_size=100)
    return Made(transformers.T5EncoderModel._from_config(config), text())


def mpnet(attention: str) -> Made:
    return Made(auto(transformers.MPNetConfig(**TEXT), attention), text())


def deberta(attention: str) -> Made:
    relative = {"relative_attention": True, "position_buckets": 8, "share_att_key": True}
    config = transformers.DebertaV2Config(
        **TEXT, **relative, pos_att_type=["c2p", "p2c"], norm_rel_ebd="layer_norm"
    )
    return Made(auto(config, attention), text())


def vit(attention: str) -> Made:
    config = transformers.ViTConfig(**SIZES, image_size=32, patch_size=8)
    return Made(auto(config, attention), image())


def swin(attention: str) -> Made:
    """Windows, every second time shifted."""
    sizes = {"image_size": 32, "patch_size": 2, "embed_dim": 16, "window_size": 4}
    config = transformers.SwinConfig(**sizes, depths=[2], num_heads=[2])
    return Made(auto(config, attention), image())


def whisper(attention: str) -> nn.Module:
    lengths = {"max_source_positions": 20, "max_target_positions": 20, "num_mel_bins": 8}
    config = transformers.WhisperConfig(**SPEECH, **lengths)
    found: nn.Module = transformers.WhisperModel._from_config(config, attn_implementation=attention)
    return found


def whisper_encoder(attention: str) -> Made:
    features = torch.randn(2, 8, 40, generator=torch.Generator())
    return Made(whisper(attention).encoder, {"input_features": features})  # type: ignore[dict-item,arg-type]


def whisper_decoder(attention: str) -> Made:
    states = torch.randn(2, 20, 64, generator=torch.Generator())
    inputs = {"input_ids": tokens(7), "encoder_hidden_states": states}
    return Made(whisper(attention).decoder, inputs)  # type: ignore[arg-type]


def bart(attention: str) -> Made:
    config = transformers.BartConfig(**SPEECH)
    return Made(auto(config, attention), text() | {"decoder_input_ids": tokens(7)})


Make = Callable[[str], Made]


class _Positional(nn.Module):
    def __init__(self, made: Made) -> None:
        super().__init__()
        self.model, self.names = made.model, list(made.inputs)

    def forward(self, *values: Tensor) -> Tensor:
        found: Tensor = self.model(**dict(zip(self.names, values, strict=True)))[0]
        return found


def export(make: Make, attention: str, dynamo: bool, opset: int) -> tuple[Path, dict[str, Any]]:
    """The model as a file, and its inputs. Exports take seconds, so files are kept between runs."""
    torch.manual_seed(0)
    made = make(attention)
    source = zlib.crc32(Path(__file__).read_bytes())
    of = f"{make.__name__}-{attention}-{'dynamo' if dynamo else 'torchscript'}-{opset}"
    name = f"attention-{of}-{versions('torch', 'transformers', 'onnxscript')}-{source:08x}.onnx"
    path = cached(name, partial(_write, made, dynamo, opset))
    return path, {name: value.numpy() for name, value in made.inputs.items()}


def _write(made: Made, dynamo: bool, opset: int, path: Path) -> None:
    module, names = _Positional(made).eval(), list(made.inputs)
    args = tuple(made.inputs.values())
    open_axes = {
        name: {0: "batch", 1: f"{name}_length"} if value.dim() == 2 else {0: "batch"}
        for name, value in made.inputs.items()
    }
    how: dict[str, Any] = {"dynamo": False, "dynamic_axes": open_axes}
    if dynamo:
        dynamic = torch.export.Dim.DYNAMIC
        shapes = (tuple(dict.fromkeys(open_axes[name], dynamic) for name in names),)
        how = {"dynamo": True, "dynamic_shapes": shapes, "verbose": False}
    how |= {"input_names": names, "opset_version": opset}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, args, str(path), **how)
