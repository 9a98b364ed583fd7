"""Each quantized layer of PyTorch, in each way that there is to hold it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from octavo import Recipe, Scheme
from octavo.torch import qconfig as q
from tests.golden.corpus import Case
from tests.golden.torch_support import Make, case, filled
from tests.models import seeded

ALL = Recipe(name="all", default=Scheme())
RECIPES: dict[str, dict[str, Any]] = {
    name: {"recipe": name}
    for name in ("int8", "int8-per-tensor", "int8-accurate", "int8-block", "int4", "float16")
}


def scheme(**said: Any) -> Recipe:
    return Recipe(name="own", default=Scheme.from_dict(said))


OWN: dict[str, dict[str, Any]] = {
    "all": {"recipe": ALL},
    "affine": {"recipe": scheme(weight={"symmetric": False})},
    "uint8": {"recipe": scheme(weight={"qtype": "uint8"})},
    "uint8 affine": {"recipe": scheme(weight={"qtype": "uint8", "symmetric": False})},
    "7 bits": {"recipe": scheme(weight={"reduce_range": True})},
    "histogram": {"recipe": scheme(weight={"granularity": "tensor", "observer": "histogram"})},
    "group 32": {"recipe": scheme(activation={"granularity": "group", "group": 32})},
    "tensor rows": {"recipe": scheme(activation={"granularity": "tensor"})},
    "block 16": {"recipe": scheme(weight={"granularity": "block", "block": 16}, activation=None)},
    "weights only": {"recipe": scheme(activation=None)},
}
DTYPES: dict[str, dict[str, Any]] = {
    "default": {},
    "qint8": {"dtype": torch.qint8},
    "float16": {"dtype": torch.float16},
    "quint8": {"dtype": torch.quint8},
    "named int8": {"dtype": "int8"},
}


def by_type(*kinds: type) -> dict[str, dict[str, Any]]:
    """Qconfigs by the layer's type."""
    half = q.QConfig(q.PlaceholderObserver, q.PlaceholderObserver.with_args(dtype=torch.bfloat16))
    own = q.QConfig(
        activation=q.PlaceholderObserver.with_args(dtype="uint8", is_dynamic=True),
        weight=q.MinMaxObserver.with_args(dtype="int8", qscheme="per_tensor_symmetric"),
    )
    drawn = q.HistogramObserver.with_args(dtype="int8", qscheme="per_tensor_affine")
    found = {
        "set": set(kinds),
        "default qconfig": dict.fromkeys(kinds, q.default_dynamic_qconfig),
        "per channel": dict.fromkeys(kinds, q.per_channel_dynamic_qconfig),
        "float16 qconfig": dict.fromkeys(kinds, q.float16_dynamic_qconfig),
        "bfloat16 qconfig": dict.fromkeys(kinds, half),
        "own qconfig": dict.fromkeys(kinds, own),
        "histogram qconfig": dict.fromkeys(kinds, q.QConfig(q.PlaceholderObserver, drawn)),
        "float qparams": dict.fromkeys(kinds, q.float_qparams_weight_only_qconfig),
        "scheme": dict.fromkeys(kinds, Scheme()),
    }
    return {f"by {name}": {"qconfig_spec": spec} for name, spec in found.items()}


class Called(nn.Module):
    """A layer behind a call of its own."""

    def __init__(self, layer: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.layer, self.call = layer, call

    def forward(self, *args: Any) -> Any:
        return self.call(self.layer, *args)


def of(layer: Callable[[], nn.Module], *args: Any, call: Callable[..., Any] | None = None) -> Make:
    def make() -> tuple[nn.Module, tuple[Any, ...]]:
        made = layer() if call is None else Called(layer(), call)
        return filled(made), args

    return make


def _seq(*layers: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(*(layer() for layer in layers))


def lin(k: int = 40, n: int = 48, **more: Any) -> Callable[[], nn.Module]:
    return partial(nn.Linear, k, n, **more)


X = seeded(3, 7, 40)
IMAGE = seeded(2, 8, 12, 10)
IDS = torch.tensor([[3, 0, 49, 7, 5], [5, 5, 0, 1, 2]])
OFFSETS = torch.tensor([0, 4, 4, 8])
ACTS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu tanh": lambda: nn.GELU("tanh"),
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "elu": nn.ELU,
    "hardswish": nn.Hardswish,
    "relu6": nn.ReLU6,
    "mish": nn.Mish,
}


def packed(layer: nn.Module, x: Tensor, lengths: Tensor) -> Any:
    found = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    y, state = layer(found)
    return (y.data, state)


STEPS = seeded(6, 3, 24)


def states(count: int, cell: bool = False) -> tuple[Any, ...]:
    h = seeded(count, 3, 20, seed=1, scale=0.5)
    return ((h, seeded(count, 3, 20, seed=2, scale=0.5)),) if cell else (h,)


def mha(**more: Any) -> Callable[[], nn.Module]:
    return partial(nn.MultiheadAttention, 32, 4, **more)


def attend(layer: nn.Module, x: Tensor) -> Any:
    return layer(x, x, x)


def forward(layer: nn.Module, *args: Any) -> Any:
    return layer(*args)


def masked(layer: nn.Module, x: Tensor) -> Any:
    padding = torch.zeros(x.shape[0], x.shape[1], dtype=torch.bool)
    padding[1, 4:] = True
    return layer(x, x, x, key_padding_mask=padding, need_weights=False)


def causal(layer: nn.Module, x: Tensor) -> Any:
    mask = torch.triu(torch.full((x.shape[1], x.shape[1]), -torch.inf), 1)
    return layer(x, x, x, attn_mask=mask, average_attn_weights=False)


A = seeded(3, 6, 32)


def conv1d_hf() -> nn.Module:
    from transformers.pytorch_utils import Conv1D

    return Conv1D(48, 40)


DEFAULT: dict[str, dict[str, Any]] = {"default": {}}
ASKED = {"all": OWN["all"]}
FLOAT16 = {"float16": DTYPES["float16"]}
ACCURATE = {"int8-accurate": RECIPES["int8-accurate"]}
INT8 = {"int8": RECIPES["int8"]}


def conv2d(*sizes: int, **more: Any) -> Callable[[], nn.Module]:
    return partial(nn.Conv2d, *sizes, **more)


def cast(dtype: torch.dtype) -> Make:
    return lambda: (filled(nn.Sequential(nn.Linear(40, 48))).to(dtype), (X.to(dtype),))


LAYER = partial(nn.TransformerEncoderLayer, 32, 4, 64)
C3 = conv2d(8, 16, 3)
CIRCULAR = conv2d(8, 8, 3, padding=1, padding_mode="circular")
BIAS_KV = mha(batch_first=True, add_bias_kv=True, add_zero_attn=True)
OTHER_SIZES = mha(batch_first=True, kdim=20, vdim=28)
KEYS, VALUES = seeded(3, 5, 20, seed=3), seeded(3, 5, 28, seed=4)
WEIGHTED = partial(nn.EmbeddingBag, 400, 24, mode="sum", include_last_offset=True, padding_idx=0)


def bag(mode: str) -> Make:
    layer = partial(nn.EmbeddingBag, 400, 24, mode=mode)
    return of(layer, IDS.reshape(-1), OFFSETS, call=lambda m, i, o: m(i, o))


Options = Mapping[str, Mapping[str, Any]]
SPECS: dict[str, tuple[Make, Options]] = {
    "linear": (of(_seq(lin()), X), {**DTYPES, **RECIPES, **OWN, **by_type(nn.Linear)}),
    "linear itself": (of(lin(), X), {**DTYPES, **INT8}),
    "linear, no bias": (of(_seq(lin(bias=False)), X), DTYPES),
    "linear, odd": (of(_seq(lin(37, 19)), seeded(5, 37)), {**DEFAULT, **ACCURATE}),
    "linear, wide": (
        of(_seq(lin(300, 10)), seeded(5, 300)),
        {**DEFAULT, **RECIPES, "group 32": OWN["group 32"]},
    ),
    "linear, one row": (of(_seq(lin()), seeded(40)), DEFAULT),
    "linear, no rows": (of(_seq(lin()), seeded(0, 40)), DEFAULT),
    "linear, float16 model": (cast(torch.float16), {**DEFAULT, **FLOAT16}),
    "linear, bfloat16 model": (cast(torch.bfloat16), {**DEFAULT, **FLOAT16}),
    "linear, double model": (cast(torch.float64), DEFAULT),
    **{
        f"linear, {name}": (of(_seq(lin(), act, lin(48, 16)), X), DEFAULT)
        for name, act in ACTS.items()
    },
    "linear, norm": (of(_seq(lin(), partial(nn.LayerNorm, 48), lin(48, 16), nn.ReLU), X), DEFAULT),
    "conv1d": (
        of(_seq(partial(nn.Conv1d, 8, 16, 3, padding=1)), seeded(2, 8, 20)),
        {**OWN, **by_type(nn.Conv1d), **INT8, "float16": RECIPES["float16"]},
    ),
    "conv1d, strided": (
        of(
            _seq(partial(nn.Conv1d, 8, 16, 5, stride=2, dilation=2, groups=2, bias=False)),
            seeded(2, 8, 30),
        ),
        ASKED,
    ),
    "conv2d": (
        of(_seq(conv2d(8, 16, 3, padding=1)), IMAGE),
        {**OWN, **by_type(nn.Conv2d), **RECIPES},
    ),
    "conv2d, strided": (
        of(_seq(partial(nn.Conv2d, 8, 16, (3, 2), stride=2, dilation=2, padding=1)), IMAGE),
        ASKED,
    ),
    "conv2d, depthwise": (
        of(_seq(conv2d(8, 8, 3, groups=8, padding="same", bias=False)), IMAGE),
        {**ASKED, "affine": OWN["affine"]},
    ),
    "conv2d, mirror": (
        of(_seq(conv2d(8, 8, 3, padding=1, padding_mode="reflect")), IMAGE),
        ASKED,
    ),
    "conv2d, circular": (of(_seq(CIRCULAR), IMAGE), ASKED),
    "conv2d, relu, pool": (of(_seq(C3, nn.ReLU, partial(nn.MaxPool2d, 2)), IMAGE), ASKED),
    "conv2d, norm": (of(_seq(C3, partial(nn.BatchNorm2d, 16), nn.ReLU), IMAGE), ASKED),
    "conv2d, one image": (of(_seq(C3), IMAGE[0]), ASKED),
    "conv2d, channels last": (of(_seq(C3), IMAGE.to(memory_format=torch.channels_last)), ASKED),
    "conv3d": (
        of(_seq(partial(nn.Conv3d, 4, 8, 3)), seeded(1, 4, 5, 5, 5)),
        {**ASKED, "by set": {"qconfig_spec": {nn.Conv3d}}},
    ),
    "conv transposed": (
        of(_seq(partial(nn.ConvTranspose2d, 8, 8, 3), lin(12, 8)), IMAGE),
        {**ASKED, **DEFAULT, "by set": {"qconfig_spec": {nn.ConvTranspose2d}}},
    ),
    "embedding": (
        of(_seq(partial(nn.Embedding, 400, 24, padding_idx=3)), IDS),
        {**DTYPES, **RECIPES, **OWN, **by_type(nn.Embedding)},
    ),
    "embedding, small": (
        of(_seq(partial(nn.Embedding, 50, 24)), IDS),
        {**INT8, "by name": {"qconfig_spec": {"0": Scheme()}}},
    ),
    "embedding, int32": (of(_seq(partial(nn.Embedding, 400, 24)), IDS.int()), ASKED),
    "embedding, max_norm": (of(_seq(partial(nn.Embedding, 400, 24, max_norm=1.0)), IDS), ASKED),
    "bag, sum": (
        bag("sum"),
        {**ASKED, "quint8": DTYPES["quint8"], **by_type(nn.EmbeddingBag)},
    ),
    "bag, mean": (bag("mean"), ASKED),
    "bag, max": (bag("max"), ASKED),
    "bag, weighted": (
        of(
            WEIGHTED,
            IDS.reshape(-1),
            torch.tensor([0, 4, 10]),
            seeded(10),
            call=lambda m, i, o, w: m(i, o, per_sample_weights=w),
        ),
        ASKED,
    ),
    "bag, rows": (of(partial(nn.EmbeddingBag, 400, 24), IDS, call=forward), ASKED),
    "mha": (
        of(mha(batch_first=True), A, call=attend),
        {**DTYPES, **RECIPES, **by_type(nn.MultiheadAttention)},
    ),
    "mha, time first": (of(mha(bias=False), A, call=attend), DEFAULT),
    "mha, padding": (of(mha(batch_first=True), A, call=masked), {**DEFAULT, **ACCURATE}),
    "mha, causal": (of(mha(batch_first=True), A, call=causal), DEFAULT),
    "mha, other sizes": (of(OTHER_SIZES, A, KEYS, VALUES, call=forward), DEFAULT),
    "mha, bias of keys": (of(BIAS_KV, A, call=attend), DEFAULT),
    "hf conv1d": (
        of(lambda: nn.Sequential(conv1d_hf()), X),
        {**DEFAULT, **RECIPES, "float16 type": DTYPES["float16"]},
    ),
    "transformer encoder layer": (
        of(partial(LAYER, batch_first=True), A),
        {**DEFAULT, **RECIPES},
    ),
    "transformer encoder layer, norm first": (
        of(partial(LAYER, activation="gelu", norm_first=True), A),
        DEFAULT,
    ),
    "transformer encoder": (
        of(lambda: nn.TransformerEncoder(LAYER(batch_first=True), 2), A),
        DEFAULT,
    ),
    "transformer": (
        of(lambda: nn.Transformer(32, 4, 1, 1, 64, batch_first=True), A, seeded(3, 4, 32, seed=8)),
        DEFAULT,
    ),
    "bilinear": (
        of(partial(nn.Bilinear, 8, 9, 10), seeded(3, 8), seeded(3, 9, seed=1)),
        {**DEFAULT, **INT8, "by set": {"qconfig_spec": {nn.Bilinear}}},
    ),
    "lstm, projection": (
        of(partial(nn.LSTM, 24, 20, proj_size=10, bidirectional=True), STEPS, call=forward),
        {**DEFAULT, **FLOAT16},
    ),
    "rnn, relu": (of(partial(nn.RNN, 24, 20, nonlinearity="relu"), STEPS, call=forward), DEFAULT),
    "rnn cell, relu": (
        of(partial(nn.RNNCell, 24, 20, nonlinearity="relu"), STEPS[0], call=forward),
        DEFAULT,
    ),
}
_RECURRENT = {
    "lstm": (nn.LSTM, nn.LSTMCell),
    "gru": (nn.GRU, nn.GRUCell),
    "rnn": (nn.RNN, nn.RNNCell),
}
for _name, (_kind, _cell) in _RECURRENT.items():
    _both = partial(_kind, 24, 20, bidirectional=True)
    _layer = partial(_kind, 24, 20)
    _lengths = torch.tensor([6, 2, 4])
    _plain = partial(_layer, batch_first=True, bias=False)
    _types = {**OWN, **by_type(_kind)} if _name == "lstm" else {}
    _every = {**DTYPES, **RECIPES, **_types}
    SPECS |= {
        _name: (of(_layer, STEPS, call=forward), _every),
        f"{_name}, two both ways": (
            of(partial(_both, num_layers=2), STEPS, *states(4, cell=_name == "lstm"), call=forward),
            {**DEFAULT, **FLOAT16},
        ),
        f"{_name}, batch first, no bias": (
            of(_plain, STEPS, call=forward),
            {**DEFAULT, **ACCURATE},
        ),
        f"{_name}, packed": (
            of(partial(_both, batch_first=True), seeded(3, 6, 24), _lengths, call=packed),
            DEFAULT,
        ),
        f"{_name}, one sequence": (of(_layer, STEPS[:, 0], call=forward), DEFAULT),
        f"{_name} cell": (
            of(partial(_cell, 24, 20), STEPS[0], call=forward),
            {**DTYPES, **(by_type(_cell) if _name == "lstm" else {})},
        ),
        f"{_name} cell, no bias": (
            of(partial(_cell, 24, 20, bias=False), STEPS[0], call=forward),
            DEFAULT,
        ),
    }

_SAVED = {"embedding": "all", "conv1d": "all", "conv2d": "all", "bag, sum": "all"}
CASES: dict[str, Case] = {
    name: case(make, options, saved=_SAVED.get(name, "default"))
    for name, (make, options) in SPECS.items()
}
