"""What quantized layers promise alike, whatever they compute. Recurrent ones, whose inputs are
sequences and states, are in test_torch_recurrent_use."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from octavo.errors import ModelError, NotTrainableError
from octavo.torch import quantize_dynamic
from octavo.torch.layers.registry import covering
from tests.models import assert_bits, net
from tests.torch.behaviour import (
    FLOATS,
    assert_keeps_its_state,
    assert_runs_in_graphs,
    assert_threads_do_not_matter,
)
from tests.torch.layers.cases import quantized, rows

Made = tuple[Callable[[], nn.Module], str, tuple[int, ...]]


def linear(bias: bool = True) -> nn.Module:
    return nn.Linear(37, 21, bias=bias)


def pair() -> nn.Module:
    return nn.Bilinear(37, 5, 3)


def image(mode: str = "zeros", **options: Any) -> Callable[[], nn.Module]:
    return lambda: nn.Conv2d(6, 12, 3, padding=(2, 1), padding_mode=mode, **options)


def signal(mode: str = "zeros") -> nn.Module:
    return nn.Conv1d(6, 5, 4, padding="same", dilation=2, padding_mode=mode)


def table(**options: Any) -> nn.Module:
    return nn.Embedding(50, 19, **options)


def bag(mode: str) -> Callable[[], nn.Module]:
    return lambda: nn.EmbeddingBag(50, 19, mode=mode, padding_idx=3)


# How the float layer is made, by which choice it is quantized, and the shape of an item.
MULTIPLY: dict[str, Made] = {
    "linear": (linear, "default", (37,)),
    "linear-no-bias": (lambda: linear(False), "default", (37,)),
    "linear-per-tensor": (linear, "per tensor", (37,)),
    "linear-accurate": (linear, "accurate", (37,)),
    "linear-7-bits": (linear, "7 bits", (37,)),
    "linear-qconfig": (linear, "qconfig per tensor", (37,)),
    "linear-float16": (linear, "float16", (37,)),
    "linear-bfloat16": (lambda: linear(False), "bfloat16", (37,)),
    "linear-int4-32": (linear, "int4-32", (37,)),
    "linear-int4-64-affine": (linear, "int4-64-affine", (37,)),
    "linear-int8-128-affine": (linear, "int8-128-affine", (37,)),
    "transformers-conv1d": (lambda: Conv1D(21, 37), "affine", (37,)),
    "transformers-conv1d-float16": (lambda: Conv1D(21, 37), "float16", (37,)),
    "bilinear": (pair, "default", (37,)),
    "bilinear-affine": (pair, "affine", (37,)),
    "conv2d": (image(), "default", (6, 8, 9)),
    "conv2d-depthwise": (image(groups=6, stride=2), "qconfig per channel", (6, 8, 9)),
    "conv2d-reflect": (image("reflect"), "per tensor", (6, 8, 9)),
    "conv2d-replicate": (image("replicate", bias=False), "default", (6, 8, 9)),
    "conv1d": (signal, "default", (6, 23)),
    "conv1d-circular": (lambda: signal("circular"), "default", (6, 23)),
}
LOOK_UP: dict[str, Made] = {
    "embedding": (lambda: table(padding_idx=-3), "uint8 affine", (4,)),
    "embedding-int8": (table, "int8", (4,)),
    "embedding-float-zeros": (table, "float qparams", (4,)),
    "embedding-float16": (table, "float16", (4,)),
    "embedding-bfloat16": (table, "bfloat16", (4,)),
    "bag-sum": (bag("sum"), "uint8 affine", (4,)),
    "bag-mean": (bag("mean"), "int8 affine", (4,)),
    "bag-mean-float16": (bag("mean"), "float16", (4,)),
    "bag-max": (bag("max"), "bfloat16", (4,)),
    "bag-max-float-zeros": (bag("max"), "float qparams", (4,)),
}
EVERY = MULTIPLY | LOOK_UP
every_layer = pytest.mark.parametrize("name", EVERY)
every_product = pytest.mark.parametrize("name", MULTIPLY)
pytestmark = pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel")


def made(name: str) -> Any:
    make, choice, _ = EVERY[name]
    torch.manual_seed(0)
    return quantized(make(), choice)


def given(name: str, batch: int = 3) -> tuple[Tensor, ...]:
    """Inputs of a batch of items."""
    make, _, shape = EVERY[name]
    if name in LOOK_UP:
        torch.manual_seed(batch)
        return (torch.randint(0, 50, (batch, *shape)),)
    x = rows(batch, *shape)
    return (x, rows(batch, 5, seed=2)) if make is pair else (x,)


@every_layer
def test_it_keeps_its_state(name: str) -> None:
    assert_keeps_its_state(made(name), *given(name))


@pytest.mark.sweep(4)
@every_layer
def test_it_runs_in_graphs(name: str) -> None:
    assert_runs_in_graphs(made(name), given(name), given(name, 7))


LARGE: dict[str, tuple[Callable[[], nn.Module], tuple[Tensor, ...]]] = {
    "linear": (lambda: nn.Linear(512, 700), (rows(64, 512),)),
    "bilinear": (lambda: nn.Bilinear(128, 16, 32), (rows(64, 128), rows(64, 16))),
    "conv2d": (lambda: nn.Conv2d(6, 12, 3), (rows(40, 6, 11, 12),)),
    "conv1d": (lambda: nn.Conv1d(6, 40, 1), (rows(40, 6, 23),)),
    "embedding": (table, (torch.arange(64 * 512).reshape(64, 512) % 50,)),
    "bag": (bag("sum"), (torch.arange(200 * 300).reshape(200, 300) % 50,)),
}
THREADS = [
    *(("linear", choice) for choice in ("default", "accurate", "float16", "bfloat16", "int4-32")),
    *(("bilinear", "default"), ("conv2d", "default"), ("conv1d", "default")),
    *((kind, choice) for kind in ("embedding", "bag") for choice in ("uint8 affine", "float16")),
]


@pytest.mark.parametrize(("kind", "choice"), THREADS)
def test_threads_do_not_matter(kind: str, choice: str) -> None:
    make, inputs = LARGE[kind]
    assert_threads_do_not_matter(quantized(make(), choice), *inputs)


@every_product
def test_every_dtype_is_computed_in_float32_and_returned_in_kind(name: str) -> None:
    layer, inputs = made(name), given(name)
    for dtype in FLOATS:
        x = [t.to(dtype) for t in inputs]
        assert_bits(layer(*x), layer(*(t.float() for t in x)).to(dtype))


@every_layer
def test_shapes_and_strides(name: str) -> None:
    layer, inputs = made(name), given(name)
    y = layer(*inputs)
    assert layer(*(t[:0] for t in inputs)).shape == (0, *y.shape[1:])
    if not name.startswith("bag"):
        assert_bits(layer(*(t[1] for t in inputs)), y[1])
    for view in (lambda t: t.mT.contiguous().mT, lambda t: torch.stack([t, t], -1)[..., 0]):
        assert_bits(layer(*map(view, inputs)), y)
    assert_bits(layer(*(t[::2] for t in inputs)), y[::2])
    assert_bits(layer(*(t[:1].expand_as(t) for t in inputs)), y[:1].expand_as(y).clone())
    if not name.startswith(("conv", "bag")):
        deep = [t.reshape(1, 3, 1, *t.shape[1:]) for t in inputs]
        assert_bits(layer(*deep), y.reshape(1, 3, 1, *y.shape[1:]))
        assert_bits(layer(*(t.transpose(0, 1) for t in deep)), y.reshape(3, 1, 1, *y.shape[1:]))


@every_product
def test_items_do_not_touch_each_other(name: str) -> None:
    layer, (x, *more) = made(name), given(name, 6)
    y = layer(x, *more)
    assert_bits(layer(x[4:5], *(t[4:5] for t in more)), y[4:5])
    x[1] *= 100
    for item, bad in ((2, torch.nan), (3, torch.inf), (5, -torch.inf)):
        x[item].view(-1)[7] = bad
    spoilt = layer(x, *more)
    assert_bits(spoilt[[0, 4]], y[[0, 4]])
    assert_bits(layer(x[1:2], *(t[1:2] for t in more)), spoilt[1:2])
    assert not torch.equal(spoilt[1], y[1])
    assert spoilt[2].isnan().all()
    assert not spoilt[[3, 5]].isfinite().any()
    assert spoilt[[3, 5]].isnan().all() or "float16" in name


@every_layer
def test_a_half_model_is_quantized_as_its_weights_are(name: str) -> None:
    make, choice, _ = EVERY[name]
    torch.manual_seed(0)
    half = make().half()
    layer = quantized(half, choice)
    for key, tensor in quantized(half.float(), choice).state_dict().items():
        assert torch.equal(layer.state_dict()[key], tensor)
    y = layer(*(t.half() if name in MULTIPLY else t for t in given(name)))
    assert y.dtype is torch.float16


@every_layer
def test_a_cast_is_followed(name: str) -> None:
    """As by a float layer: `weight` says it, and so do outputs where no input is a float."""
    make, choice, _ = EVERY[name]
    for way in ("before", "after"):
        layer = quantized(make().half(), choice) if way == "before" else quantized(make(), choice)
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            layer.to(dtype)
            assert layer.weight.dtype is layer.weight().dtype is dtype
            x = [t.to(dtype) if name in MULTIPLY else t for t in given(name)]
            assert layer(*x).dtype is dtype
            assert copy.deepcopy(layer).weight.dtype is dtype
            assert pickle.loads(pickle.dumps(layer)).weight.dtype is dtype


@every_layer
def test_weights_that_are_not_finite_are_refused_by_name(name: str) -> None:
    make, choice, _ = EVERY[name]
    layer = make()
    with torch.no_grad():
        layer.weight.view(-1)[-3] = torch.nan
    with pytest.raises(ValueError, match=r"^encoder\.fc: .*NaN"):
        quantized(layer, choice, name="encoder.fc")


@every_layer
def test_an_empty_layer_says_that_it_is_empty(name: str) -> None:
    layer = made(name)
    with torch.device("meta"):
        empty = type(layer)(**layer.config())
    with pytest.raises(ModelError, match="holds no weights yet"):
        empty(*given(name))


@every_product
def test_forward_works_in_grad_mode_and_backward_says_why_not(name: str) -> None:
    layer, (x, *more) = made(name), given(name)
    y = layer(x.clone().requires_grad_(), *more)
    assert_bits(y.detach(), layer(x, *more))
    with pytest.raises(NotTrainableError, match=r"octavo::\w+ has no backward"):
        y.sum().backward()


@every_product
def test_inputs_that_are_refused(name: str) -> None:
    layer, (x, *more) = made(name), given(name)
    for wrong in (x.int(), x.to(torch.complex64)):
        with pytest.raises(TypeError, match="needs float32"):
            layer(wrong, *more)
    refused = [torch.cat([x, x], 1)]  # of inputs or channels
    if name in ("conv2d", "conv1d"):
        refused += [x[None], x[0, 0]]
    if x.dim() == 2:
        refused += [torch.tensor(1.0), refused[0][None]]
    for wrong in refused:
        with pytest.raises(ValueError, match="needs shape"):
            layer(wrong, *more)


REPRS = {
    "linear-accurate": "QuantizedLinear(in_features=37, out_features=21, bias=True, int8 affine, "
    "activation groups of 128)",
    "linear-int4-64-affine": "QuantizedLinear(in_features=37, out_features=21, bias=True, "
    "int4-64-affine)",
    "linear-bfloat16": "QuantizedHalfLinear(in_features=37, out_features=21, bias=False, bfloat16)",
    "bilinear-affine": "QuantizedBilinear(in1_features=37, in2_features=5, out_features=3, "
    "bias=True, int8 affine)",
    "conv1d-circular": "QuantizedConv1d(6, 5, kernel_size=(4,), stride=(1,), padding='same', "
    "dilation=(2,), groups=1, bias=True, padding_mode=circular, int8)",
    "embedding": "QuantizedEmbedding(50, 19, padding_idx=47, uint8, int32 zero points)",
    "bag-max": "QuantizedEmbeddingBag(50, 19, padding_idx=3, mode='max', "
    "include_last_offset=False, bfloat16)",
}


@pytest.mark.parametrize("name", REPRS)
def test_it_prints_what_it_is(name: str) -> None:
    assert repr(made(name)) == REPRS[name]


@pytest.mark.parametrize(
    ("layer", "wrong"),
    [
        (lambda: nn.Linear(8, 4), torch.ones(3, 9)),
        (lambda: nn.Conv2d(8, 4, 3), torch.ones(1, 9, 5, 5)),
        (lambda: nn.LSTM(8, 4), torch.ones(3, 1, 9)),
        (lambda: nn.GRU(8, 4), torch.ones(3, 1, 9)),
        (lambda: nn.GRUCell(8, 4), torch.ones(3, 9)),
        (lambda: nn.Embedding(8, 4), torch.tensor([9])),
    ],
)
def test_an_input_that_does_not_fit_names_the_layer(layer: Any, wrong: torch.Tensor) -> None:
    """By its place in the model, alone by its class, and where it runs with what follows it."""
    kind = type(layer())
    for model, name in (
        (nn.Sequential(nn.Sequential(layer())), r"0\.0"),
        (nn.Sequential(OrderedDict(first=layer(), second=nn.Identity())), "first"),
        (layer(), f"Quantized{kind.__name__}"),
    ):
        quantized = quantize_dynamic(model, {kind})
        with pytest.raises((ValueError, IndexError), match=rf"^{name}: (x|input|indices): "):
            quantized(wrong)


ARRAY = rows(3, 8).numpy()
REFUSED: dict[str, tuple[nn.Module, tuple[Any, ...], str]] = {
    "attention": (nn.MultiheadAttention(8, 2), 3 * (rows(3, 1, 9),), "part: query: "),
    "encoder": (nn.TransformerEncoderLayer(8, 2), (rows(3, 1, 9),), r"part\.self_attn: query: "),
    "fused": (nn.Sequential(nn.Linear(8, 4), nn.ReLU()), (rows(3, 9),), r"part\.0: x: "),
    "bag": (nn.EmbeddingBag(8, 4), (torch.tensor([[9]]),), "part: indices: "),
    "lstm-cell": (nn.LSTMCell(8, 4), (rows(3, 8), 2 * (rows(3, 5),)), r"part: hx\[0\]: "),
    "gru-cell": (nn.GRUCell(8, 4), (rows(3, 8), rows(2, 4)), "part: hx: "),
    "rnn": (nn.RNN(8, 4), (rows(3, 1, 8), rows(2, 1, 4)), "part: hx: "),
    "float": (nn.Embedding(8, 4), (rows(3),), "part: input: "),
    "array": (nn.Linear(8, 4), (ARRAY,), "part: input: needs a tensor, not ndarray"),
    "list": (nn.GRUCell(8, 4), (ARRAY.tolist(),), "part: input: needs a tensor, not list"),
    "array-state": (nn.RNNCell(8, 4), (rows(3, 8), ARRAY), "part: hx: needs a tensor, not ndarray"),
    "array-in-pair": (nn.LSTMCell(8, 8), (rows(3, 8), [rows(3, 8), ARRAY]), r"part: hx\[1\]: n"),
    "missing": (
        nn.MultiheadAttention(8, 2),
        (rows(3, 8),),
        "part: .*missing .*'key'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_argument_that_does_not_fit_names_the_layer(name: str) -> None:
    layer, wrong, message = REFUSED[name]
    kinds = {type(part) for part in layer.modules() if covering(part)}
    quantized = quantize_dynamic(net(lambda self, *x: self.part(*x), part=layer), kinds)
    with torch.no_grad(), pytest.raises((ValueError, IndexError, TypeError), match=f"^{message}"):
        quantized(*wrong)
