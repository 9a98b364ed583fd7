"""Each quantized layer of PyTorch, in each way that there is to hold it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from octavo import Recipe, Scheme
from octavo.torch import qconfig as q
from tests.golden.corpus import Case, Missing
from tests.golden.torch_support import Make, case, filled, seeded

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
    half = q.QConfig(
        activation=q.PlaceholderObserver,
        weight=q.PlaceholderObserver.with_args(dtype=torch.bfloat16),
    )
    own = q.QConfig(
        activation=q.PlaceholderObserver.with_args(dtype="uint8", is_dynamic=True),
        weight=q.MinMaxObserver.with_args(dtype="int8", qscheme="per_tensor_symmetric"),
    )
    histogram = q.QConfig(
        activation=q.PlaceholderObserver,
        weight=q.HistogramObserver.with_args(dtype="int8", qscheme="per_tensor_affine"),
    )
    found = {
        "set": set(kinds),
        "default qconfig": dict.fromkeys(kinds, q.default_dynamic_qconfig),
        "per channel": dict.fromkeys(kinds, q.per_channel_dynamic_qconfig),
        "float16 qconfig": dict.fromkeys(kinds, q.float16_dynamic_qconfig),
        "bfloat16 qconfig": dict.fromkeys(kinds, half),
        "own qconfig": dict.fromkeys(kinds, own),
        "histogram qconfig": dict.fromkeys(kinds, histogram),
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
    return lambda: nn.Linear(k, n, **more)


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


def states(count: int, size: int = 20, cell: bool = False) -> tuple[Any, ...]:
    h = seeded(count, 3, size, seed=1, scale=0.5)
    return ((h, seeded(count, 3, 20, seed=2, scale=0.5)),) if cell else (h,)


def mha(**more: Any) -> Callable[[], nn.Module]:
    return lambda: nn.MultiheadAttention(32, 4, **more)


def attend(layer: nn.Module, x: Tensor) -> Any:
    return layer(x, x, x)


def cross(layer: nn.Module, x: Tensor, k: Tensor, v: Tensor) -> Any:
    return layer(x, k, v)


def masked(layer: nn.Module, x: Tensor) -> Any:
    padding = torch.zeros(x.shape[0], x.shape[1], dtype=torch.bool)
    padding[1, 4:] = True
    return layer(x, x, x, key_padding_mask=padding, need_weights=False)


def causal(layer: nn.Module, x: Tensor) -> Any:
    mask = torch.triu(torch.full((x.shape[1], x.shape[1]), -torch.inf), 1)
    return layer(x, x, x, attn_mask=mask, average_attn_weights=False)


A = seeded(3, 6, 32)


def conv1d_hf() -> nn.Module:
    try:
        from transformers.pytorch_utils import Conv1D
    except ImportError as error:
        raise Missing(f"transformers: {error}") from error
    return Conv1D(48, 40)


SPECS: dict[str, tuple[Make, Mapping[str, Mapping[str, Any]]]] = {
    "linear": (of(_seq(lin()), X), {**DTYPES, **RECIPES, **OWN, **by_type(nn.Linear)}),
    "linear itself": (of(lin(), X), {**DTYPES, "int8": RECIPES["int8"]}),
    "linear, no bias": (of(_seq(lin(bias=False)), X), {**DTYPES, **OWN}),
    "linear, odd": (
        of(_seq(lin(37, 19)), seeded(5, 37)),
        {"default": {}, "accurate": RECIPES["int8-accurate"]},
    ),
    "linear, wide": (
        of(_seq(lin(300, 10)), seeded(5, 300)),
        {"default": {}, **RECIPES, "group 32": OWN["group 32"]},
    ),
    "linear, one row": (of(_seq(lin()), seeded(40)), {"default": {}}),
    "linear, no rows": (of(_seq(lin()), seeded(0, 40)), {"default": {}}),
    "linear, float16 model": (
        lambda: (filled(nn.Sequential(nn.Linear(40, 48))).half(), (X.half(),)),
        {"default": {}, "float16": DTYPES["float16"]},
    ),
    "linear, bfloat16 model": (
        lambda: (filled(nn.Sequential(nn.Linear(40, 48))).bfloat16(), (X.bfloat16(),)),
        {"default": {}, "float16": DTYPES["float16"]},
    ),
    "linear, double model": (
        lambda: (filled(nn.Sequential(nn.Linear(40, 48))).double(), (X.double(),)),
        {"default": {}},
    ),
    **{
        f"linear, {name}": (
            of(_seq(lin(), act, lin(48, 16)), X),
            {"default": {}, "int8-accurate": RECIPES["int8-accurate"]},
        )
        for name, act in ACTS.items()
    },
    "linear, norm": (
        of(_seq(lin(), lambda: nn.LayerNorm(48), lin(48, 16), nn.ReLU), X),
        {"default": {}},
    ),
    "conv1d": (
        of(_seq(lambda: nn.Conv1d(8, 16, 3, padding=1)), seeded(2, 8, 20)),
        {**OWN, **by_type(nn.Conv1d), "int8": RECIPES["int8"], "float16": RECIPES["float16"]},
    ),
    "conv1d, strided": (
        of(
            _seq(lambda: nn.Conv1d(8, 16, 5, stride=2, dilation=2, groups=2, bias=False)),
            seeded(2, 8, 30),
        ),
        {"all": OWN["all"]},
    ),
    "conv2d": (
        of(_seq(lambda: nn.Conv2d(8, 16, 3, padding=1)), IMAGE),
        {**OWN, **by_type(nn.Conv2d), **RECIPES},
    ),
    "conv2d, strided": (
        of(_seq(lambda: nn.Conv2d(8, 16, (3, 2), stride=2, dilation=2, padding=1)), IMAGE),
        {"all": OWN["all"]},
    ),
    "conv2d, depthwise": (
        of(_seq(lambda: nn.Conv2d(8, 8, 3, groups=8, padding="same", bias=False)), IMAGE),
        {"all": OWN["all"], "affine": OWN["affine"]},
    ),
    "conv2d, mirror": (
        of(_seq(lambda: nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect")), IMAGE),
        {"all": OWN["all"]},
    ),
    "conv2d, circular": (
        of(_seq(lambda: nn.Conv2d(8, 8, 3, padding=1, padding_mode="circular")), IMAGE),
        {"all": OWN["all"]},
    ),
    "conv2d, relu, pool": (
        of(_seq(lambda: nn.Conv2d(8, 16, 3), nn.ReLU, lambda: nn.MaxPool2d(2)), IMAGE),
        {"all": OWN["all"]},
    ),
    "conv2d, norm": (
        of(_seq(lambda: nn.Conv2d(8, 16, 3), lambda: nn.BatchNorm2d(16), nn.ReLU), IMAGE),
        {"all": OWN["all"]},
    ),
    "conv2d, one image": (of(_seq(lambda: nn.Conv2d(8, 16, 3)), IMAGE[0]), {"all": OWN["all"]}),
    "conv2d, channels last": (
        of(_seq(lambda: nn.Conv2d(8, 16, 3)), IMAGE.to(memory_format=torch.channels_last)),
        {"all": OWN["all"]},
    ),
    "conv3d": (
        of(_seq(lambda: nn.Conv3d(4, 8, 3)), seeded(1, 4, 5, 5, 5)),
        {"all": OWN["all"], "by set": {"qconfig_spec": {nn.Conv3d}}},
    ),
    "conv transposed": (
        of(_seq(lambda: nn.ConvTranspose2d(8, 8, 3), lin(12, 8)), IMAGE),
        {"all": OWN["all"], "default": {}, "by set": {"qconfig_spec": {nn.ConvTranspose2d}}},
    ),
    "embedding": (
        of(_seq(lambda: nn.Embedding(400, 24, padding_idx=3)), IDS),
        {**DTYPES, **RECIPES, **OWN, **by_type(nn.Embedding)},
    ),
    "embedding, small": (
        of(_seq(lambda: nn.Embedding(50, 24)), IDS),
        {"int8": RECIPES["int8"], "by name": {"qconfig_spec": {"0": Scheme()}}},
    ),
    "embedding, int32": (of(_seq(lambda: nn.Embedding(400, 24)), IDS.int()), {"all": OWN["all"]}),
    "embedding, max_norm": (
        of(_seq(lambda: nn.Embedding(400, 24, max_norm=1.0)), IDS),
        {"all": OWN["all"]},
    ),
    **{
        f"bag, {mode}": (
            of(
                lambda mode=mode: nn.EmbeddingBag(400, 24, mode=mode),
                IDS.reshape(-1),
                OFFSETS,
                call=lambda m, i, o: m(i, o),
            ),
            {"all": OWN["all"], "quint8": DTYPES["quint8"], **by_type(nn.EmbeddingBag)}
            if mode == "sum"
            else {"all": OWN["all"]},
        )
        for mode in ("sum", "mean", "max")
    },
    "bag, weighted": (
        of(
            lambda: nn.EmbeddingBag(400, 24, mode="sum", include_last_offset=True, padding_idx=0),
            IDS.reshape(-1),
            torch.tensor([0, 4, 10]),
            seeded(10),
            call=lambda m, i, o, w: m(i, o, per_sample_weights=w),
        ),
        {"all": OWN["all"]},
    ),
    "bag, rows": (
        of(lambda: nn.EmbeddingBag(400, 24), IDS, call=lambda m, i: m(i)),
        {"all": OWN["all"]},
    ),
    "mha": (
        of(mha(batch_first=True), A, call=attend),
        {**DTYPES, **RECIPES, **OWN, **by_type(nn.MultiheadAttention)},
    ),
    "mha, time first": (of(mha(bias=False), A, call=attend), {"default": {}}),
    "mha, padding": (
        of(mha(batch_first=True), A, call=masked),
        {"default": {}, "int8-accurate": RECIPES["int8-accurate"]},
    ),
    "mha, causal": (of(mha(batch_first=True), A, call=causal), {"default": {}}),
    "mha, other sizes": (
        of(
            mha(batch_first=True, kdim=20, vdim=28),
            A,
            seeded(3, 5, 20, seed=3),
            seeded(3, 5, 28, seed=4),
            call=cross,
        ),
        {"default": {}},
    ),
    "mha, bias of keys": (
        of(mha(batch_first=True, add_bias_kv=True, add_zero_attn=True), A, call=attend),
        {"default": {}},
    ),
    "hf conv1d": (
        of(lambda: nn.Sequential(conv1d_hf()), X),
        {"default": {}, **RECIPES, "float16 type": DTYPES["float16"]},
    ),
    "transformer encoder layer": (
        of(lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), A),
        {"default": {}, **RECIPES},
    ),
    "transformer encoder layer, norm first": (
        of(lambda: nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", norm_first=True), A),
        {"default": {}},
    ),
    "transformer encoder": (
        of(
            lambda: nn.TransformerEncoder(
                nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2
            ),
            A,
        ),
        {"default": {}},
    ),
    "transformer": (
        of(lambda: nn.Transformer(32, 4, 1, 1, 64, batch_first=True), A, seeded(3, 4, 32, seed=8)),
        {"default": {}},
    ),
    "bilinear": (
        of(lambda: nn.Bilinear(8, 9, 10), seeded(3, 8), seeded(3, 9, seed=1)),
        {"default": {}, "int8": RECIPES["int8"], "by set": {"qconfig_spec": {nn.Bilinear}}},
    ),
}
_KINDS: dict[str, type[nn.Module]] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
for _name, _kind in _KINDS.items():
    _cell = _name == "lstm"
    SPECS[_name] = (
        of(lambda k=_kind: k(24, 20), STEPS, call=lambda m, x: m(x)),
        {**DTYPES, **RECIPES, **OWN, **by_type(_kind)},
    )
    SPECS[f"{_name}, two both ways"] = (
        of(
            lambda k=_kind: k(24, 20, num_layers=2, bidirectional=True),
            STEPS,
            *states(4, cell=_cell),
            call=lambda m, x, s: m(x, s),
        ),
        {"default": {}, "float16": DTYPES["float16"]},
    )
    SPECS[f"{_name}, batch first, no bias"] = (
        of(lambda k=_kind: k(24, 20, batch_first=True, bias=False), STEPS, call=lambda m, x: m(x)),
        {"default": {}, "int8-accurate": RECIPES["int8-accurate"]},
    )
    SPECS[f"{_name}, packed"] = (
        of(
            lambda k=_kind: k(24, 20, batch_first=True, bidirectional=True),
            seeded(3, 6, 24),
            torch.tensor([6, 2, 4]),
            call=packed,
        ),
        {"default": {}},
    )
    SPECS[f"{_name}, one sequence"] = (
        of(lambda k=_kind: k(24, 20), STEPS[:, 0], call=lambda m, x: m(x)),
        {"default": {}},
    )
    _cellk: Any = {"lstm": nn.LSTMCell, "gru": nn.GRUCell, "rnn": nn.RNNCell}[_name]
    SPECS[f"{_name} cell"] = (
        of(lambda k=_cellk: k(24, 20), STEPS[0], call=lambda m, x: m(x)),
        {**DTYPES, **RECIPES, "affine": OWN["affine"], "7 bits": OWN["7 bits"], **by_type(_cellk)},
    )
    SPECS[f"{_name} cell, no bias"] = (
        of(lambda k=_cellk: k(24, 20, bias=False), STEPS[0], call=lambda m, x: m(x)),
        {"default": {}},
    )
SPECS["lstm, projection"] = (
    of(lambda: nn.LSTM(24, 20, proj_size=10, bidirectional=True), STEPS, call=lambda m, x: m(x)),
    {"default": {}, "float16": DTYPES["float16"]},
)
SPECS["rnn, relu"] = (
    of(lambda: nn.RNN(24, 20, nonlinearity="relu"), STEPS, call=lambda m, x: m(x)),
    {"default": {}},
)
SPECS["rnn cell, relu"] = (
    of(lambda: nn.RNNCell(24, 20, nonlinearity="relu"), STEPS[0], call=lambda m, x: m(x)),
    {"default": {}},
)

_SAVED = {"embedding": "all", "conv1d": "all", "conv2d": "all", "bag, sum": "all"}
CASES: dict[str, Case] = {
    name: case(
        make,
        options,
        full=("default",) if len(options) > 3 else (),
        saved=_SAVED.get(name, "default"),
    )
    for name, (make, options) in SPECS.items()
}
