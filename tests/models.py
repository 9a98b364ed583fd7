"""Small PyTorch models and helpers for tests: numbers, modules, tiny transformers, measures."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn

from octavo.onnx import session
from octavo.torch import report

Array = npt.NDArray[Any]
VOCABULARY = 512  # tables of 16 kB and more, which presets quantize


def seeded(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    """Normal numbers, the same in each run."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


def tokens(*shape: int, seed: int = 0, below: int = VOCABULARY) -> Tensor:
    """Ids of words, the same in each run; 0 and 1, which pad and begin, are not among them."""
    return torch.randint(2, below, shape, generator=torch.Generator().manual_seed(seed))


def filled(model: nn.Module, seed: int = 0) -> nn.Module:
    """Return `model` in eval mode with weights that are the same in each run."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            bound = 1 / max(1, parameter.shape[-1]) ** 0.5
            parameter.uniform_(-bound, bound, generator=generator)
    return model.eval()


def net(forward: Callable[..., Any], **parts: Any) -> nn.Module:
    """Make a module of parts by name: `net(lambda m, x: m.out(m.up(x).relu()), up=..., out=...)`.

    It can be copied, compiled and exported; it cannot be pickled.
    """
    made: nn.Module = type("Net", (nn.Module,), {"forward": forward})()
    for name, part in parts.items():
        setattr(made, name, part)
    return made


def mlp(*widths: int, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Linear layers of the widths that follow each other, with `act` between them."""
    torch.manual_seed(0)
    widths = widths or (16, 32, 8)
    layers = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
    between = [each for layer in layers for each in (layer, act())]
    return nn.Sequential(*between[:-1])


def convolutions() -> nn.Sequential:
    """[b, 3, h, w] -> [b, 8, ..]: one convolution with stride and padding, one in groups."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 8, (3, 1), groups=2)
    )


def encoder(width: int = 32, heads: int = 4, layers: int = 2, **given: Any) -> Any:
    """nn.TransformerEncoder, batch first, in eval mode; `given` goes to its layers."""
    torch.manual_seed(0)
    given = {"dim_feedforward": 2 * width, "batch_first": True} | given
    nested = given.pop("enable_nested_tensor", False)
    layer = nn.TransformerEncoderLayer(width, heads, **given)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=nested).eval()


class Feedforward(nn.Module):
    """x -> first -> act -> last."""

    def __init__(self, inputs: int = 20, hidden: int = 30, outputs: int = 4, act: Any = None):
        super().__init__()
        self.first, self.act = nn.Linear(inputs, hidden), nn.SiLU() if act is None else act
        self.last = nn.Linear(hidden, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.act(self.first(x)))


class Tied(nn.Module):
    """An embedding and an output layer of one weight, with a layer between them."""

    def __init__(self, words: int = 40, width: int = 64, tied: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.inner = nn.Embedding(words, width), nn.Linear(width, width)
        self.head = nn.Linear(width, words, bias=False)
        if tied:
            self.head.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.inner(self.table(ids)))


class Twice(nn.Module):
    """One layer in two places, and one block in two."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.block = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width))
        self.again = self.first
        self.blocks = nn.ModuleList([self.block, nn.ReLU(), self.block])

    def forward(self, x: Tensor) -> Tensor:
        x = self.again(self.first(x))
        for block in self.blocks:
            x = block(x)
        return x


class Tables(nn.Module):
    """Lookups of both kinds, and a layer behind them."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Embedding(30, 20, padding_idx=1)
        self.bag = nn.EmbeddingBag(30, 20, mode="sum")
        self.fc = nn.Linear(20, 20)

    def forward(self, ids: Tensor) -> Tensor:
        return self.fc(self.one(ids).sum(1) + self.bag(ids))


class Speech(nn.Module):
    """A stack of LSTM layers, and a head: x [b, t, 12] -> [b, t, 5] and the state."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.lstm = nn.LSTM(12, 16, num_layers=3, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 5)

    def forward(self, x: Tensor, h: Any = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y, state = self.lstm(x, h)
        return self.head(y), state


class Attends(nn.Module):
    """Attention of its own beside an encoder, with a mask."""

    def __init__(self, fast: bool = True, layers: int = 2) -> None:
        super().__init__()
        self.encoder = encoder(16, 2, layers, activation="gelu", enable_nested_tensor=fast)
        self.look = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> dict[str, Tensor | None]:
        y = self.encoder(x, src_key_padding_mask=mask)
        found, weights = self.look(y, x, x)
        return {"found": found, "weights": weights}


class Doubled(nn.Module):
    """Twice what it is given: an activation, or a parametrization of a weight."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


_ENCODER = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
}
_DECODER = _ENCODER | {"hidden_size": 64, "num_key_value_heads": 2}
_BOTH = {
    "d_model": 48,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
}
_SIZES: dict[str, dict[str, Any]] = {
    "DistilBert": {"dim": 48, "n_layers": 2, "n_heads": 4, "hidden_dim": 96},
    "Qwen3": _DECODER | {"head_dim": 16, "tie_word_embeddings": True},
    "Mixtral": _DECODER | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "GPT2": {"n_positions": 64, "n_embd": 48, "n_layer": 2, "n_head": 4}
    | {"bos_token_id": 1, "eos_token_id": 2},
    "T5": {"d_model": 48, "d_kv": 12, "d_ff": 96, "num_layers": 2, "num_heads": 4}
    | {"decoder_start_token_id": 0},
    "Bart": _BOTH | {"max_position_embeddings": 64},
    "Whisper": _BOTH
    | {"max_source_positions": 30, "max_target_positions": 40, "num_mel_bins": 80}
    | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1},
    "ViT": _ENCODER | {"image_size": 32, "patch_size": 8, "num_labels": 10},
    "Wav2Vec2": _ENCODER
    | {"conv_dim": (32, 32), "conv_stride": (5, 2), "conv_kernel": (10, 3)}
    | {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4},
}


def transformer(name: str = "BertModel", **options: Any) -> Any:
    """A tiny model of transformers by the name of its class, in eval mode, with random weights.

    `options` go to its config; families that `_SIZES` does not name have plain ones.
    """
    import transformers

    kind = getattr(transformers, name)
    family = kind.config_class.__name__.removesuffix("Config")
    plain = _DECODER if name.endswith("ForCausalLM") else _ENCODER
    sizes = {"vocab_size": VOCABULARY} | _SIZES.get(family, plain) | options
    torch.manual_seed(0)
    return kind(kind.config_class(**sizes)).eval()


def outcomes(model: nn.Module) -> dict[str, Any]:
    """Return the report's entry of each layer by its name."""
    return {o.layer.name: o for o in report(model).layers}


def flat(outputs: Any) -> list[Array]:
    """Return all tensors of a module's output, in order, as arrays."""
    if isinstance(outputs, (tuple, list)):
        return [array for output in outputs for array in flat(output)]
    return [outputs.detach().float().numpy()]


def relative(got: Any, expected: Any) -> float:
    """The norm of the difference over that of what is expected: of tensors or arrays."""
    a, b = (np.asarray(t.detach() if isinstance(t, Tensor) else t) for t in (got, expected))
    assert a.shape == b.shape, f"shape {a.shape}, expected {b.shape}"
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def assert_bits(a: Any, b: Any) -> None:
    """The same dtype, shape and values; NaN is NaN. Tuples are compared one by one."""
    if isinstance(a, tuple):
        for one, other in zip(a, b, strict=True):
            assert_bits(one, other)
        return
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    assert torch.equal(a.isnan(), b.isnan())
    assert torch.equal(a.nan_to_num(), b.nan_to_num())


def quiet(call: Any) -> Any:
    """`call`, without the warnings of PyTorch about its own ways (torch.jit is at its end)."""

    def called(*args: Any, **kwargs: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call(*args, **kwargs)

    return called


def run(path: Path, *args: Tensor) -> list[Array]:
    """The outputs of an exported file for positional inputs, with all optimizations of ONNX
    Runtime."""
    opened = session(path)
    names = [i.name for i in opened.get_inputs()]
    feed = dict(zip(names, (a.numpy() for a in args), strict=True))
    return list(opened.run(None, feed))


def constants(path: Path) -> dict[str, Array]:
    """The initializers of an exported file by name."""
    graph = onnx.load(path).graph
    return {i.name: numpy_helper.to_array(i) for i in graph.initializer}


def operators(path: Path) -> list[str]:
    """The types of the nodes of an exported file."""
    return [node.op_type for node in onnx.load(path).graph.node]


def worst_of_rows(x: Array, w: Array) -> Array:
    """Bound what rounding x [..., K] per row around zero changes of x @ w.T, w [N, K]: [..., N].

    A step is max|x| / 127, and each input is off by half of one at most.
    """
    half_step = np.abs(x).max(axis=-1, keepdims=True).astype(np.float64) / 254
    return half_step * np.abs(w.astype(np.float64)).sum(axis=-1)
