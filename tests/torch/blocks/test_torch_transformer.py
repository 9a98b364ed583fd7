"""nn.Transformer and its layers, with any mixture of quantized and float layers in them."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from octavo import Scheme
from octavo.torch import quantize_dynamic, report
from octavo.torch.layers.attention import QuantizedMultiheadAttention
from octavo.torch.layers.linear import QuantizedLinear

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")

D, HEADS, FF, T, N = 32, 4, 64, 6, 4
LENGTHS = (6, 3, 5, 1)

ON = Scheme()
SPECS: dict[str, Any] = {
    "default": None,
    "linear1": {"layers.0.linear1", "layers.1.linear1"},
    "linear2 of the first": {"layers.0.linear2"},
    "linear2 of the last": {"layers.1.linear2"},
    "attention": {nn.MultiheadAttention: ON},
    "in-projections": {nn.MultiheadAttention: ON, "layers.0.self_attn.out_proj": None},
    "the last layer": {"layers.1": ON},
    "linear": {nn.Linear},
}
every_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)


@pytest.fixture(params=[True, False], ids=["fast path", "plain path"])
def fast(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Whether torch may take its fused paths; they differ in what padded positions hold."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(request.param)
    yield request.param
    torch.backends.mha.set_fastpath_enabled(before)


def encoder(**options: Any) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    given = {"batch_first": True, "dropout": 0.1, **options}
    layer = nn.TransformerEncoderLayer(D, HEADS, FF, **given)
    nested = given["batch_first"] and not given.get("norm_first") and given.get("bias", True)
    made = nn.TransformerEncoder(layer, 2, nn.LayerNorm(D), enable_nested_tensor=bool(nested))
    for parameter in made.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
    return made.eval()


def padding() -> Tensor:
    return torch.arange(T)[None] >= torch.tensor(LENGTHS)[:, None]


def error(got: Tensor, wanted: Tensor) -> float:
    return float((got - wanted).detach().norm() / wanted.detach().norm())


@every_spec
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
def test_encoders_with_padding(spec: Any, fast: bool, grad: bool) -> None:
    model = encoder()
    quantized = quantize_dynamic(model, spec)
    x, hidden = torch.randn(N, T, D), padding()
    with torch.set_grad_enabled(grad), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*nested tensors is in prototype")
        wanted = model(x, src_key_padding_mask=hidden)
        got = quantized(x, src_key_padding_mask=hidden)
    assert got.shape == wanted.shape
    assert 0 < error(got[~hidden], wanted[~hidden]) < 0.03


@pytest.mark.sweep(3)
@every_spec
@pytest.mark.parametrize("masked", [True, False], ids=["causal", "no mask"])
def test_encoders_without_padding(spec: Any, fast: bool, masked: bool) -> None:
    model = encoder(activation="gelu")
    quantized = quantize_dynamic(model, spec)
    mask = nn.Transformer.generate_square_subsequent_mask(T) if masked else None
    for x in (torch.randn(N, T, D), torch.randn(T, D)):
        with torch.no_grad():
            assert 0 < error(quantized(x, mask), model(x, mask)) < 0.03
            layer, changed = model.layers[0], quantized.layers[0]
            assert error(changed(x, mask), layer(x, mask)) < 0.03


@pytest.mark.sweep(3)
@every_spec
@pytest.mark.parametrize(
    "options",
    [{"batch_first": False}, {"norm_first": True}, {"bias": False}, {"activation": torch.sin}],
    ids=["sequence first", "norm first", "no bias", "own activation"],
)
def test_options(spec: Any, options: dict[str, Any]) -> None:
    if "activation" in options:
        with pytest.warns(UserWarning, match="activation_relu_or_gelu"):
            model = encoder(**options)
    else:
        model = encoder(**options)
    quantized = quantize_dynamic(model, spec)
    x = torch.randn(N, T, D) if options.get("batch_first", True) else torch.randn(T, N, D)
    with torch.no_grad():
        got = quantized(x, src_key_padding_mask=padding())
        wanted = model(x, src_key_padding_mask=padding())
    seen = ~padding() if options.get("batch_first", True) else ~padding().t()
    assert 0 < error(got[seen], wanted[seen]) < 0.03


def test_what_is_inside_after_a_default_conversion() -> None:
    quantized = quantize_dynamic(encoder())
    types = {type(module) for module in quantized.modules()}
    assert {QuantizedLinear, QuantizedMultiheadAttention} < types
    assert not {nn.Linear, nn.MultiheadAttention} & types
    outcomes = report(quantized).layers
    assert len(outcomes) == 8 and all(o.quantized for o in outcomes)
    assert any("src_key_padding_mask hides are not zeros" in n for n in report(quantized).notes)


def test_the_float_model_keeps_its_fast_paths() -> None:
    model = encoder()
    quantize_dynamic(model)
    assert model.use_nested_tensor
    assert [layer.activation_relu_or_gelu for layer in model.layers] == [1, 1]


def test_layers_that_stay_float_keep_theirs() -> None:
    quantized = quantize_dynamic(encoder(), {"layers.1.linear1"})
    assert [layer.activation_relu_or_gelu for layer in quantized.layers] == [1, 0]


def test_a_layer_of_the_users_own_is_called_too(fast: bool) -> None:
    class Doubled(nn.Module):  # type: ignore[misc]
        @classmethod
        def from_float(cls, module: nn.Module) -> Doubled:
            made = cls()
            made.inner = module
            return made

        def forward(self, x: Tensor) -> Tensor:
            return 2 * self.inner(x)

    model = encoder()
    quantized = quantize_dynamic(model, {nn.Linear}, mapping={nn.Linear: Doubled})
    for layer in model.layers:
        for linear in (layer.linear1, layer.linear2):
            linear.weight.data *= 2
            linear.bias.data *= 2
    x = torch.randn(N, T, D)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*nested tensors is in prototype")
        got = quantized(x, src_key_padding_mask=padding())
        wanted = model(x, src_key_padding_mask=padding())
    assert error(got[~padding()], wanted[~padding()]) < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_other_dtypes(dtype: torch.dtype) -> None:
    model = encoder()
    x = torch.randn(N, T, D)
    with torch.no_grad():
        wanted = model(x)
        got = quantize_dynamic(model.to(dtype))(x.to(dtype))
    assert got.dtype is dtype
    assert error(got.float(), wanted) < 0.05


DECODER_SPECS: dict[str, Any] = {
    "default": None,
    "linear": {nn.Linear},
    "self_attn": {"layers.0.self_attn": ON},
    "multihead_attn": {"layers.1.multihead_attn": ON},
}


@pytest.mark.parametrize("spec", DECODER_SPECS.values(), ids=DECODER_SPECS)
@pytest.mark.parametrize("batch_first", [True, False])
def test_decoders(spec: Any, batch_first: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(D, HEADS, FF, batch_first=batch_first)
    model = nn.TransformerDecoder(layer, 2).eval()
    quantized = quantize_dynamic(model, spec)
    target, memory = torch.randn(N, T, D), torch.randn(N, 5, D)
    hidden = torch.zeros(N, 5, dtype=torch.bool)
    hidden[:, 3:] = True
    if not batch_first:
        target, memory = target.transpose(0, 1), memory.transpose(0, 1)
    given = {
        "tgt_mask": nn.Transformer.generate_square_subsequent_mask(T),
        "tgt_is_causal": True,
        "memory_key_padding_mask": hidden,
    }
    with torch.no_grad():
        assert 0 < error(quantized(target, memory, **given), model(target, memory, **given)) < 0.03


@pytest.mark.parametrize("spec", [None, {"encoder"}, {"decoder.layers.0.linear1"}], ids=str)
@pytest.mark.parametrize("batched", [True, False])
def test_a_whole_transformer(spec: Any, fast: bool, batched: bool) -> None:
    torch.manual_seed(0)
    model = nn.Transformer(D, HEADS, 2, 2, FF, batch_first=True).eval()
    quantized = quantize_dynamic(model, spec)
    source, target = torch.randn(N, T, D), torch.randn(N, 5, D)
    given: dict[str, Any] = {"tgt_mask": nn.Transformer.generate_square_subsequent_mask(5)}
    if batched:
        given |= {"src_key_padding_mask": padding(), "memory_key_padding_mask": padding()}
    else:
        source, target = source[0], target[0]
    with torch.no_grad():
        got, wanted = quantized(source, target, **given), model(source, target, **given)
    assert 0 < error(got, wanted) < 0.03


def test_copies_keep_off_the_fast_paths() -> None:
    quantized = quantize_dynamic(encoder(), {"layers.1.linear1"})
    x, hidden = torch.randn(N, T, D), padding()
    with torch.no_grad():
        wanted = quantized(x, src_key_padding_mask=hidden)
        for made in (copy.deepcopy(quantized), pickle.loads(pickle.dumps(quantized))):
            assert torch.equal(made(x, src_key_padding_mask=hidden), wanted)


def test_an_encoder_built_from_a_quantized_layer() -> None:
    layer = quantize_dynamic(nn.TransformerEncoderLayer(D, HEADS, FF, batch_first=True))
    with pytest.warns(UserWarning, match="self.use_nested_tensor is False"):
        model = nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(N, T, D)
    with torch.no_grad():
        assert torch.equal(model(x), layer(layer(x)))


def test_compiled_and_exported() -> None:
    quantized = quantize_dynamic(encoder())
    x, hidden = torch.randn(N, T, D), padding()
    with torch.no_grad():
        wanted = quantized(x, src_key_padding_mask=hidden)
        compiled = torch.compile(quantized, fullgraph=True, backend="aot_eager")
        assert error(compiled(x, src_key_padding_mask=hidden), wanted) < 1e-5
        exported = torch.export.export(quantized, (x,), {"src_key_padding_mask": hidden})
        assert error(exported.module()(x, src_key_padding_mask=hidden), wanted) < 1e-5
