"""nn.Transformer and its layers, with any mixture of quantized and float layers in them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from octavo import Scheme
from octavo.torch import quantize_dynamic, report
from octavo.torch.layers.attention import QuantizedMultiheadAttention
from octavo.torch.layers.linear import QuantizedLinear
from tests.models import relative

pytestmark = [
    pytest.mark.usefixtures("one_registry"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype:UserWarning"),
]

D, HEADS, FF, T, N = 32, 4, 64, 6, 4
LENGTHS = (6, 3, 5, 1)
HIDDEN = torch.arange(T)[None] >= torch.tensor(LENGTHS)[:, None]
CAUSAL = nn.Transformer.generate_square_subsequent_mask(T)

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


def near(quantized: Any, model: Any, *given: Any, seen: Any = ..., **named: Any) -> None:
    """The quantized model differs from the float one, and by little, where that is `seen`."""
    assert 0 < relative(quantized(*given, **named)[seen], model(*given, **named)[seen]) < 0.03


@pytest.mark.sweep(5)
@every_spec
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
def test_encoders_with_padding(spec: Any, fast: bool, grad: bool) -> None:
    model = encoder()
    with torch.set_grad_enabled(grad):
        x = torch.randn(N, T, D)
        near(quantize_dynamic(model, spec), model, x, seen=~HIDDEN, src_key_padding_mask=HIDDEN)


@pytest.mark.sweep(5)
@every_spec
@pytest.mark.parametrize("mask", [CAUSAL, None], ids=["causal", "no mask"])
def test_encoders_without_padding(spec: Any, fast: bool, mask: Any) -> None:
    model = encoder(activation="gelu")
    quantized = quantize_dynamic(model, spec)
    for x in (torch.randn(N, T, D), torch.randn(T, D)):
        near(quantized, model, x, mask)
        assert relative(quantized.layers[0](x, mask), model.layers[0](x, mask)) < 0.03


@pytest.mark.sweep(7)
@every_spec
@pytest.mark.parametrize(
    "options",
    [{"batch_first": False}, {"norm_first": True}, {"bias": False}, {"activation": torch.sin}],
    ids=["sequence first", "norm first", "no bias", "own activation"],
)
@pytest.mark.filterwarnings("ignore:.*activation_relu_or_gelu:UserWarning")
def test_options(spec: Any, options: dict[str, Any]) -> None:
    model, x, seen = encoder(**options), torch.randn(N, T, D), ~HIDDEN
    if not options.get("batch_first", True):
        x, seen = x.transpose(0, 1), seen.t()
    near(quantize_dynamic(model, spec), model, x, seen=seen, src_key_padding_mask=HIDDEN)


def test_what_is_inside_after_a_conversion() -> None:
    model = encoder()
    quantized = quantize_dynamic(model)
    types = {type(module) for module in quantized.modules()}
    assert {QuantizedLinear, QuantizedMultiheadAttention} < types
    assert not {nn.Linear, nn.MultiheadAttention} & types
    outcomes = report(quantized).layers
    assert len(outcomes) == 8 and all(o.quantized for o in outcomes)
    assert any("src_key_padding_mask" in n for n in report(quantized).notes)
    # The float model keeps its fast paths, as layers do that stay float.
    assert model.use_nested_tensor
    assert [layer.activation_relu_or_gelu for layer in model.layers] == [1, 1]
    partly = quantize_dynamic(model, {"layers.1.linear1"})
    assert [layer.activation_relu_or_gelu for layer in partly.layers] == [1, 0]


class TwiceLinear(nn.Module):
    """A layer of the user's own."""

    @classmethod
    def from_float(cls, module: nn.Module) -> TwiceLinear:
        made = cls()
        made.inner = module
        return made

    def forward(self, x: Tensor) -> Tensor:
        return 2 * self.inner(x)


def test_a_layer_of_the_users_own_is_called_too(fast: bool) -> None:
    model = encoder()
    quantized = quantize_dynamic(model, {nn.Linear}, mapping={nn.Linear: TwiceLinear})
    for layer in model.layers:
        for linear in (layer.linear1, layer.linear2):
            linear.weight.data *= 2
            linear.bias.data *= 2
    x = torch.randn(N, T, D)
    got, wanted = (of(x, src_key_padding_mask=HIDDEN)[~HIDDEN] for of in (quantized, model))
    assert relative(got, wanted) < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_other_dtypes(dtype: torch.dtype) -> None:
    model, x = encoder(), torch.randn(N, T, D)
    wanted = model(x)
    got = quantize_dynamic(model.to(dtype))(x.to(dtype))
    assert got.dtype is dtype
    assert relative(got.float(), wanted) < 0.05


DECODER_SPECS: dict[str, Any] = {
    "default": None,
    "linear": {nn.Linear},
    "self_attn": {"layers.0.self_attn": ON},
    "multihead_attn": {"layers.1.multihead_attn": ON},
}


@pytest.mark.sweep(5)
@pytest.mark.parametrize("spec", DECODER_SPECS.values(), ids=DECODER_SPECS)
@pytest.mark.parametrize("batch_first", [True, False])
def test_decoders(spec: Any, batch_first: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(D, HEADS, FF, batch_first=batch_first)
    model = nn.TransformerDecoder(layer, 2).eval()
    given = [torch.randn(N, T, D), torch.randn(N, 5, D)]
    if not batch_first:
        given = [x.transpose(0, 1) for x in given]
    hidden = torch.zeros(N, 5, dtype=torch.bool)
    hidden[:, 3:] = True
    masks = {"tgt_mask": CAUSAL, "tgt_is_causal": True, "memory_key_padding_mask": hidden}
    near(quantize_dynamic(model, spec), model, *given, **masks)


@pytest.mark.sweep(5)
@pytest.mark.parametrize("spec", [None, {"encoder"}, {"decoder.layers.0.linear1"}], ids=str)
@pytest.mark.parametrize("batched", [True, False])
def test_a_whole_transformer(spec: Any, fast: bool, batched: bool) -> None:
    torch.manual_seed(0)
    model = nn.Transformer(D, HEADS, 2, 2, FF, batch_first=True).eval()
    source, target = torch.randn(N, T, D), torch.randn(N, 5, D)
    given: dict[str, Any] = {"tgt_mask": CAUSAL[:5, :5]}
    if batched:
        given |= {"src_key_padding_mask": HIDDEN, "memory_key_padding_mask": HIDDEN}
    else:
        source, target = source[0], target[0]
    near(quantize_dynamic(model, spec), model, source, target, **given)


def test_copies_and_graphs_keep_off_the_fast_paths() -> None:
    x = torch.randn(N, T, D)
    for spec in (None, {"layers.1.linear1"}):
        quantized = quantize_dynamic(encoder(), spec)
        wanted = quantized(x, src_key_padding_mask=HIDDEN)
        for made in (copy.deepcopy(quantized), pickle.loads(pickle.dumps(quantized))):
            assert torch.equal(made(x, src_key_padding_mask=HIDDEN), wanted)
        if spec is None:
            torch._dynamo.reset()
            compiled = torch.compile(quantized, fullgraph=True, backend="aot_eager")
            assert relative(compiled(x, src_key_padding_mask=HIDDEN), wanted) < 1e-5
            exported = torch.export.export(quantized, (x,), {"src_key_padding_mask": HIDDEN})
            assert relative(exported.module()(x, src_key_padding_mask=HIDDEN), wanted) < 1e-5


def test_an_encoder_built_from_a_quantized_layer() -> None:
    layer = quantize_dynamic(nn.TransformerEncoderLayer(D, HEADS, FF, batch_first=True))
    with pytest.warns(UserWarning, match="self.use_nested_tensor is False"):
        model = nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(N, T, D)
    assert torch.equal(model(x), layer(layer(x)))
