"""QuantizedMultiheadAttention beside nn.MultiheadAttention over the same, dequantized weights."""

from __future__ import annotations

import copy
import functools
import pickle
import warnings
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from octavo import Scheme
from octavo.errors import NotTrainableError
from octavo.torch import quantize_dynamic
from octavo.torch.layers.attention import QuantizedMultiheadAttention
from octavo.torch.layers.linear import QuantizedLinear
from tests.models import outcomes

pytestmark = pytest.mark.usefixtures("one_registry")

E, HEADS, L, S, N = 48, 4, 7, 5, 3

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batch first": {"batch_first": True},
    "no bias": {"bias": False},
    "kdim, vdim": {"kdim": 20, "vdim": 33},
    "kdim, no bias": {"kdim": 20, "bias": False, "batch_first": True},
    "bias_kv": {"add_bias_kv": True},
    "zero attention": {"add_zero_attn": True, "batch_first": True},
    "both appended": {"add_bias_kv": True, "add_zero_attn": True},
}
every_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


@pytest.fixture(autouse=True)
def plain_path() -> Iterator[None]:
    """The float layer's unfused path: masked rows and padding are then told apart alike."""
    torch.manual_seed(0)
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(before)


def float_layer(**options: Any) -> nn.MultiheadAttention:
    layer = nn.MultiheadAttention(E, HEADS, **options).eval()
    if layer.in_proj_bias is not None:
        nn.init.normal_(layer.in_proj_bias)
        nn.init.normal_(layer.out_proj.bias)
    return layer


def pair(**options: Any) -> tuple[nn.MultiheadAttention, QuantizedMultiheadAttention]:
    layer = float_layer(**options)
    return layer, quantize_dynamic(layer)


def inputs(layer: Any, batched: bool = True, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    made = []
    for length, size in ((L, E), (S, layer.kdim), (S, layer.vdim)):
        shape = (N, length, size) if layer.batch_first else (length, N, size)
        made.append(torch.randn(shape if batched else (length, size), dtype=dtype))
    return made


def close(got: Any, wanted: Any, most: float = 0.03) -> None:
    """The same shape, dtype and NaN, and an error in proportion to what is wanted."""
    assert (got is None) == (wanted is None)
    if wanted is None:
        return
    assert got.shape == wanted.shape and got.dtype == wanted.dtype
    bad = wanted.isnan()
    assert torch.equal(got.isnan(), bad)
    got, wanted = got[~bad].double(), wanted[~bad].double()
    assert (got - wanted).norm() <= most * wanted.norm()


def both(quantized: Any, layer: Any, *args: Any, most: float = 0.03, **kwargs: Any) -> None:
    with torch.no_grad():
        wanted, got = layer(*args, **kwargs), quantized(*args, **kwargs)
    close(got[0], wanted[0], most)
    close(got[1], wanted[1], most)


def masks(kind: str, rows: int, columns: int) -> Tensor:
    """Random, with the first key always seen."""
    hidden = torch.rand(rows, columns) < 0.4
    hidden[:, 0] = False
    return hidden if kind == "bool" else torch.randn(rows, columns).masked_fill(hidden, -torch.inf)


@every_option
@pytest.mark.parametrize("batched", [True, False], ids=["batched", "unbatched"])
def test_it_computes_what_the_float_layer_does(options: dict[str, Any], batched: bool) -> None:
    layer, quantized = pair(**options)
    given = inputs(layer, batched)
    for need, average in ((True, True), (True, False), (False, True)):
        both(quantized, layer, *given, need_weights=need, average_attn_weights=average)


MASKED = [
    pytest.param(attn, padding, kind, id=f"{attn}-{padding}-{kind}")
    for attn, padding, kind in product(("none", "2d", "3d"), (True, False), ("bool", "float"))
    if attn != "none" or padding
]


@pytest.mark.sweep(7)
@every_option
@pytest.mark.parametrize(("attn", "padding", "kind"), MASKED)
@pytest.mark.parametrize("batched", [True, False], ids=["batched", "unbatched"])
def test_masks(options: dict[str, Any], attn: str, padding: bool, kind: str, batched: bool) -> None:
    layer, quantized = pair(**options)
    given: dict[str, Tensor] = {}
    if attn == "2d":
        given["attn_mask"] = masks(kind, L, S)
    if attn == "3d":
        rows = (N if batched else 1) * HEADS
        given["attn_mask"] = masks(kind, rows * L, S).view(rows, L, S)
    if padding:
        given["key_padding_mask"] = masks(kind, N, S) if batched else masks(kind, 1, S)[0]
    for need_weights in (True, False):
        both(quantized, layer, *inputs(layer, batched), need_weights=need_weights, **given)


@pytest.mark.parametrize("options", [{}, {"add_bias_kv": True}, {"batch_first": True}], ids=str)
def test_is_causal(options: dict[str, Any]) -> None:
    layer, quantized = pair(**options)
    x = torch.randn(N, L, E) if layer.batch_first else torch.randn(L, N, E)
    mask = nn.Transformer.generate_square_subsequent_mask(L)
    for padding, need_weights in product((None, masks("float", N, L)), (True, False)):
        given = {"attn_mask": mask, "key_padding_mask": padding, "need_weights": need_weights}
        both(quantized, layer, x, x, x, is_causal=True, **given)


@pytest.mark.parametrize("need_weights", [True, False])
def test_rows_that_see_nothing_and_nan_spread_as_in_the_float_layer(need_weights: bool) -> None:
    layer, quantized = pair(batch_first=True)
    x = torch.randn(N, L, E)
    blind = torch.zeros(L, L, dtype=torch.bool)
    blind[2] = True
    both(quantized, layer, x, x, x, attn_mask=blind, need_weights=need_weights)
    padded = torch.zeros(N, L, dtype=torch.bool)
    padded[1] = True
    both(quantized, layer, x, x, x, key_padding_mask=padded, need_weights=need_weights)
    x[1, 3, 5] = torch.nan
    both(quantized, layer, x, x, x, need_weights=need_weights)
    query = torch.randn(N, L, E)
    query[0, 4, 0] = torch.inf
    memory = torch.randn(N, S, E)
    # torch's kernel without weights makes zeros of a query that is NaN all over, others NaN.
    both(quantized, layer, query, memory, memory, need_weights=need_weights)
    got = quantized(query, memory, memory, need_weights=need_weights)[0]
    assert got[0, 4].isnan().all() if need_weights else (got[0, 4] == layer.out_proj.bias).all()
    assert got.isfinite().sum() >= (N * L - 1) * E


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_other_dtypes(dtype: torch.dtype) -> None:
    layer, quantized = pair(batch_first=True, add_bias_kv=True)
    x = torch.randn(N, L, E, dtype=dtype)
    wanted, _ = layer(x.float(), x.float(), x.float())
    for need_weights in (True, False):
        got, weights = quantized(x, x, x, need_weights=need_weights)
        assert got.dtype is dtype and (weights is None or weights.dtype is dtype)
        close(got.float(), wanted, 0.05)
    close(quantize_dynamic(layer.to(dtype))(x, x, x)[0].float(), wanted, 0.05)


def test_strided_and_empty_inputs() -> None:
    layer, quantized = pair(batch_first=True)
    for x in (torch.randn(E, L, N).transpose(0, 2), torch.randn(0, L, E), torch.randn(N, 0, E)):
        both(quantized, layer, x, x, x)
        both(quantized, layer, x, x, x, need_weights=False)


def test_what_does_not_change_the_bits() -> None:
    """Equal inputs, which are quantized once; other rows of the batch; dropout in eval mode."""
    _, quantized = pair(batch_first=True, dropout=0.5)
    x, memory = torch.randn(N, L, E), torch.randn(N, S, E)
    louder = x.clone()
    louder[0] *= 100
    for need in (True, False):
        run = functools.partial(quantized, need_weights=need)
        assert torch.equal(run(x, x, x)[0], run(x, x.clone(), x.clone())[0])
        assert torch.equal(run(x, memory, memory)[0], run(x, memory, memory.clone())[0])
        assert torch.equal(run(x, x, x)[0][1:], run(louder, louder, louder)[0][1:])
    quantized.train()
    assert not torch.equal(quantized(x, x, x)[0], quantized(x, x, x)[0])


def test_integers_are_those_of_a_linear_layer_over_each_projection() -> None:
    layer, quantized = pair(kdim=20, vdim=33)
    for name in ("q_proj", "k_proj", "v_proj"):
        weight = getattr(layer, f"{name}_weight")
        linear = nn.Linear(*weight.shape[::-1])
        linear.weight = nn.Parameter(weight)
        wanted, found = QuantizedLinear.from_float(linear), getattr(quantized, name)
        assert torch.equal(found.packed, wanted.packed) and torch.equal(found.scale, wanted.scale)
    assert quantized.in_proj_weight is None
    same, held = pair()
    assert (held.in_proj_weight() - same.in_proj_weight).abs().max() < 0.01
    assert held.in_proj_weight.shape == (3 * E, E)


def test_the_report_counts_in_projection_and_out_projection() -> None:
    found = outcomes(quantize_dynamic(nn.Sequential(nn.MultiheadAttention(64, 4))))
    attention, out = found["0"], found["0.out_proj"]
    assert attention.layer.op == "MultiheadAttention" and out.quantized
    assert attention.bytes_before == 3 * 64 * 64 * 4
    assert attention.bytes_after == 3 * (64 * 64 + 64 * 4)  # integers and scales
    assert attention.sqnr_db > 40


@pytest.mark.parametrize(
    ("recipe", "most"), [("int8", 0.03), ("int8-accurate", 0.02), ("float16", 1e-3)]
)
def test_other_storages(recipe: str, most: float) -> None:
    layer = float_layer(batch_first=True, add_bias_kv=True)
    quantized: Any = quantize_dynamic(layer, recipe=recipe)
    x = torch.randn(N, L, E)
    both(quantized, layer, x, x, x, most=most)
    both(quantized, layer, x, x, x, need_weights=False, most=most)
    with torch.device("meta"):
        empty = QuantizedMultiheadAttention(**quantized.config())
    found, wanted = (
        {k: (v.shape, v.dtype) for k, v in of.state_dict().items() if not k.startswith("out_proj")}
        for of in (empty, quantized)
    )
    assert found == wanted
    assert empty.out_proj.weight.shape == (E, E)


def test_one_of_both_projections_may_stay_float() -> None:
    model = nn.ModuleDict({"attn": float_layer(batch_first=True), "head": nn.Linear(E, 3)})
    x = torch.randn(N, L, E)
    wanted = model.attn(x, x, x)[0]
    quantized = quantize_dynamic(model, {"attn": Scheme(), "attn.out_proj": None})
    assert type(quantized.attn) is QuantizedMultiheadAttention
    assert isinstance(quantized.attn.out_proj, nn.Linear)
    assert quantized.attn.out_proj is not model.attn.out_proj
    close(quantized.attn(x, x, x)[0], wanted)
    quantized = quantize_dynamic(model, {nn.Linear})
    assert type(quantized.attn) is nn.MultiheadAttention
    assert type(quantized.attn.out_proj) is type(model.attn.out_proj)
    assert "MultiheadAttention stays float" in outcomes(quantized)["attn.out_proj"].reason
    assert torch.equal(quantized.attn(x, x, x)[0], wanted)


def test_attentions_that_share_their_weights_share_the_buffers() -> None:
    model = nn.ModuleList([float_layer(), float_layer()])
    model[1].in_proj_weight = model[0].in_proj_weight
    first, second = quantize_dynamic(model)
    assert first.q_proj.packed is second.q_proj.packed
    assert first.v_proj.packed is second.v_proj.packed
    assert first.q_proj.packed is not first.k_proj.packed
    assert not torch.equal(first.q_proj.bias, second.q_proj.bias)


def test_copies_and_states() -> None:
    _, quantized = pair(add_bias_kv=True)
    x, other = torch.randn(L, N, E), quantize_dynamic(float_layer(add_bias_kv=True))
    wanted = quantized(x, x, x)[0]
    assert not torch.equal(other(x, x, x)[0], wanted)
    other.load_state_dict(quantized.state_dict())
    copies = (copy.deepcopy(quantized), pickle.loads(pickle.dumps(quantized)), other)
    assert all(torch.equal(made(x, x, x)[0], wanted) for made in copies)


@pytest.mark.parametrize("need_weights", [True, False])
@torch.no_grad()
def test_compiled_and_exported(need_weights: bool) -> None:
    _, quantized = pair(batch_first=True)
    x, padding = torch.randn(N, L, E), masks("bool", N, L)
    given = {"key_padding_mask": padding, "need_weights": need_weights}
    wanted = quantized(x, x, x, **given)[0]
    torch._dynamo.reset()
    compiled = torch.compile(quantized, fullgraph=True, backend="aot_eager")
    close(compiled(x, x, x, **given)[0], wanted, 1e-5)
    exported = torch.export.export(quantized, (x, x, x), given)
    close(exported.module()(x, x, x, **given)[0], wanted, 1e-5)


def test_backward_says_why_there_is_none() -> None:
    _, quantized = pair()
    x = torch.randn(L, N, E, requires_grad=True)
    with pytest.raises(NotTrainableError, match="no backward"):
        quantized(x, x, x)[0].sum().backward()


MISFITS: list[tuple[str, Any, type[Exception]]] = [
    ("query", torch.randn(L, N, E + 1), ValueError),
    ("query", torch.randn(L), ValueError),
    ("key", torch.randn(S, N, E + 1), ValueError),
    ("key", torch.randn(S, E), ValueError),
    ("value", torch.randn(S, N + 1, E), ValueError),
    ("value", torch.randn(S + 1, N, E), ValueError),
    ("attn_mask", torch.zeros(L, S + 1), ValueError),
    ("attn_mask", torch.zeros(N, L, S), ValueError),
    ("attn_mask", torch.zeros(L, S, dtype=torch.long), TypeError),
    ("key_padding_mask", torch.zeros(N, L), ValueError),
    ("key_padding_mask", torch.zeros(S), ValueError),
    ("is_causal", True, ValueError),
]


@pytest.mark.parametrize(("name", "value", "error"), MISFITS)
def test_what_does_not_fit_is_named(name: str, value: Any, error: type[Exception]) -> None:
    layer, quantized = pair()
    given = dict(zip(("query", "key", "value"), inputs(layer), strict=True)) | {name: value}
    with pytest.raises((AssertionError, RuntimeError)):
        layer(**given)
    with pytest.raises(error, match=name if name == "is_causal" else f"{name}: needs"):
        quantized(**given)


def test_nested_tensors_are_refused_in_words() -> None:
    _, quantized = pair(batch_first=True)
    with warnings.catch_warnings():  # torch warns in the first call of a process only
        warnings.filterwarnings("ignore", ".*nested tensors is in prototype")
        nested = torch.nested.nested_tensor([torch.randn(2, E), torch.randn(3, E)])
    with pytest.raises(TypeError, match="query: is a nested tensor"):
        quantized(nested, nested, nested)


def test_a_subclass_with_a_forward_of_its_own_stays_float() -> None:
    class Own(nn.MultiheadAttention):  # type: ignore[misc]
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return super().forward(*args, **kwargs)

    model = nn.ModuleDict({"up": nn.Linear(E, E), "attn": Own(E, HEADS)})
    quantized = quantize_dynamic(model, recipe="int8")
    assert type(quantized.attn) is Own
    found = outcomes(quantized)
    assert "has a forward of its own" in found["attn"].reason
    assert "stays float" in found["attn.out_proj"].reason
