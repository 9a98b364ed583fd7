"""Models as they come: shared, subclassed, lazy, half, hooked; copies, `mapping`, refusals."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import weight_norm

from octavo import Scheme
from octavo.errors import ModelError
from octavo.torch import default_mapping, quantize_dynamic, report
from octavo.torch import qconfig as qc
from octavo.torch.layers.linear import QuantizedLinear
from tests.models import mlp, net, outcomes, relative

IN, OUT = 24, 16


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def old_weight_norm(module: nn.Module) -> nn.Module:
    with pytest.warns(FutureWarning, match="weight_norm"):
        made: nn.Module = weight_norm(module)
    made.weight_g.data *= 3  # what the attribute `weight` held until now is out of date
    return made


def tied() -> Any:
    embedding, first, second = nn.Embedding(40, IN), nn.Linear(IN, 40), nn.Linear(IN, 40)
    first.weight = second.weight = embedding.weight
    parts = {"embedding": embedding, "first": first, "second": second}
    return net(lambda m, t: m.first(m.embedding(t)) - 2 * m.second(m.embedding(t)), **parts)


@pytest.mark.parametrize("inplace", [True, False])
def test_tied_weights(inplace: bool) -> None:
    model, tokens = tied(), torch.arange(12)
    wanted, table = model(tokens), model.embedding.weight
    quantized = quantize_dynamic(model, inplace=inplace)
    assert relative(quantized(tokens), wanted) < 0.02
    assert quantized.first.packed is quantized.second.packed
    assert quantized.first.scale is quantized.second.scale
    assert quantized.first.bias is not quantized.second.bias
    assert type(quantized.embedding) is nn.Embedding
    assert (quantized.embedding.weight is table) == inplace
    assert torch.equal(quantized.embedding.weight, table)
    found = outcomes(quantized)
    assert set(found["first"].layer.shares_with) == {"embedding", "second"}
    assert found["second"].sqnr_db == found["first"].sqnr_db
    both = found["first"].bytes_after + found["second"].bytes_after
    assert both == quantized.first.packed.numel() + 4 * 40  # counted once


def test_tied_weights_that_are_told_apart_do_not_share() -> None:
    quantized = quantize_dynamic(tied(), {"first": Scheme(), "second": None})
    assert isinstance(quantized.first, QuantizedLinear)
    assert quantized.second.weight is quantized.embedding.weight


@pytest.mark.parametrize("inplace", [True, False])
def test_a_model_that_is_a_layer_itself(inplace: bool) -> None:
    model = nn.Linear(IN, OUT)
    x = torch.randn(5, IN)
    wanted = model(x)
    quantized = quantize_dynamic(model, inplace=inplace)
    assert type(quantized) is QuantizedLinear and type(model) is nn.Linear
    assert relative(quantized(x), wanted) < 0.02
    assert list(outcomes(quantized)) == ["(model)"]


@pytest.mark.parametrize("inplace", [True, False])
def test_hooks_are_kept_in_order(inplace: bool) -> None:
    model = mlp(IN, 32, OUT)
    said: list[Any] = []
    model[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    model[0].register_forward_pre_hook(
        lambda module, args, kwargs: said.append(("pre", kwargs)), with_kwargs=True
    )
    handle = model[0].register_forward_hook(lambda module, args, out: said.append(type(module)))
    model[0].register_forward_hook(
        lambda module, args, kwargs, out: out + 1, with_kwargs=True, always_call=True
    )
    x = torch.randn(5, IN)
    wanted = model[0](x)
    said.clear()
    quantized = quantize_dynamic(model, inplace=inplace)
    assert relative(quantized[0](x), wanted) < 0.02
    assert said == [("pre", {}), QuantizedLinear]
    handle.remove()
    quantized[0](x)
    assert said.count(QuantizedLinear) == (1 if inplace else 2)


def test_training_state_and_requires_grad_of_the_original_stay() -> None:
    model = mlp(IN, 32, OUT).train()
    model[0].weight.requires_grad_(False)
    model[2].qconfig = None
    names = dict(model.named_modules())
    before = {k: v.clone() for k, v in model.state_dict().items()}
    assert not any(module.training for module in quantize_dynamic(model).modules())
    assert dict(model.named_modules()) == names
    assert model.training and model[2].qconfig is None
    assert not model[0].weight.requires_grad and model[2].weight.requires_grad
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert "_octavo_report" not in model.__dict__


def test_a_copy_does_not_copy_what_it_replaces() -> None:
    copies = []

    class Noted(nn.Parameter):  # type: ignore[misc]
        def __deepcopy__(self, memo: dict[int, Any]) -> Any:
            copies.append(tuple(self.shape))
            return nn.Parameter(self.detach().clone())

    model = nn.Sequential(nn.Linear(IN, IN), nn.MultiheadAttention(IN, 2), nn.LayerNorm(IN))
    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                module._parameters[name] = Noted(parameter.detach())
    quantize_dynamic(model)
    assert copies == [(IN,), (IN,)]  # the norm's


def test_the_float_weights_are_freed_inplace() -> None:
    model = mlp(IN, 32, OUT)
    weights = [weakref.ref(model[0].weight), weakref.ref(model[2].weight)]
    quantize_dynamic(model, inplace=True)
    gc.collect()
    assert [weight() for weight in weights] == [None, None]


def test_the_bias_is_not_shared_with_the_original() -> None:
    model = mlp(IN, 32, OUT)
    quantized = quantize_dynamic(model)
    bias = quantized[0].bias.clone()
    model[0].bias.data.zero_()
    assert torch.equal(quantized[0].bias, bias)


class Own(nn.Module):  # type: ignore[misc]
    """What a user may map to: keeps the float module and notes what it was told."""

    @classmethod
    def from_float(cls, module: nn.Module) -> Own:
        made = cls()
        made.inner, made.told = module, module.qconfig
        return made

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


class Special(nn.Linear):  # type: ignore[misc]
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).abs()


def test_mapping_with_a_class_of_the_users_own() -> None:
    model = nn.Sequential(Special(IN, OUT), nn.Linear(OUT, OUT))
    mapping = default_mapping()
    mapping[Special] = Own
    quantized = quantize_dynamic(model, {Special, nn.Linear}, mapping={Special: Own})
    assert outcomes(quantized)["1"].reason.startswith("mapping has no Linear")
    quantized = quantize_dynamic(model, {Special, nn.Linear}, mapping=mapping)
    assert type(quantized[0]) is Own and type(quantized[1]) is QuantizedLinear
    assert quantized[0].told is not None
    x = torch.randn(5, IN)
    assert torch.equal(quantized[0](x), model[0](x))
    assert quantized[0].inner.weight is not model[0].weight  # it may do with it what it likes
    assert outcomes(quantized)["0"].quantized


class Block(nn.Sequential):  # type: ignore[misc]
    """A container whose weights are those of its layers."""


def block() -> Block:
    return Block(OrderedDict(linear=nn.Linear(IN, IN), norm=nn.LayerNorm(IN)))


def test_mapping_replaces_what_holds_no_layer_as_torch_ao_does() -> None:
    """Containers, norms and activations, the inner before the outer."""
    mapping = {**default_mapping(), Block: Own, nn.LayerNorm: Own, nn.GELU: Own}
    model = nn.Sequential(block(), nn.GELU(), block())
    quantized = quantize_dynamic(model, {Block, nn.GELU}, mapping=mapping)
    for place in (0, 2):
        assert type(quantized[place]) is Own
        assert type(quantized[place].inner) is Block
        assert type(quantized[place].inner.linear) is QuantizedLinear
        assert type(quantized[place].inner.norm) is Own
    assert type(quantized[1]) is Own
    assert not hasattr(quantized[1].inner, "qconfig")
    assert [outcome.bytes_after for outcome in report(quantized).layers] == [
        outcome.bytes_after for outcome in report(quantize_dynamic(model)).layers
    ]
    assert any(note.startswith("0: a Own") for note in report(quantized).notes)
    x = torch.randn(5, IN)
    assert torch.equal(quantized(x), quantize_dynamic(model)(x))
    assert type(model[0]) is Block


def test_mapping_keeps_to_what_the_spec_says_of_each_module() -> None:
    qconfig = qc.default_dynamic_qconfig
    mapping = {**default_mapping(), Block: Own, nn.LayerNorm: Own, nn.GELU: Own}
    model = nn.Sequential(block(), nn.GELU(), block())
    spec = {"": qconfig, Block: None, "2.norm": qconfig, nn.GELU: None}
    quantized = quantize_dynamic(model, spec, mapping=mapping)
    assert type(quantized[0]) is type(quantized[2]) is Block
    assert type(quantized[0].norm) is nn.LayerNorm
    assert type(quantized[1]) is nn.GELU
    assert quantized[2].norm.told is qconfig
    assert report(quantized).notes[0].startswith("2.norm: a Own")


def test_modules_with_weights_of_one_axis_are_reported() -> None:
    norms = [nn.LayerNorm(IN) for _ in range(5)]
    quantized = quantize_dynamic(nn.Sequential(nn.Linear(IN, IN), nn.BatchNorm1d(IN), *norms))
    assert report(quantized).notes == (
        "weights of one axis stay float: BatchNorm1d (1), LayerNorm (2, 3, 4 and 2 more)",
    )


def test_a_type_in_mapping_that_nothing_becomes_is_reported() -> None:
    model = nn.Sequential(nn.Linear(IN, IN), nn.LayerNorm(IN))
    mapping = {**default_mapping(), nn.LayerNorm: Own, nn.GELU: Own}
    quantized = quantize_dynamic(model, mapping=mapping)
    note, _ = report(quantized).notes
    assert note.startswith("mapping has LayerNorm")


@pytest.mark.parametrize(
    ("arguments", "dtype", "qscheme"),
    [
        ({}, "qint8", "per_channel_symmetric"),
        ({"qconfig_spec": {nn.Linear}}, "qint8", "per_channel_symmetric"),
        ({"dtype": torch.float16}, "float16", None),
        ({"qconfig_spec": {"0": qc.default_dynamic_qconfig}}, "int8", "per_tensor_symmetric"),
        ({"recipe": "int8-accurate"}, "qint8", "per_channel_affine"),
        ({"recipe": "float16"}, "float16", None),
    ],
)
def test_a_class_of_the_users_own_reads_a_qconfig(
    arguments: dict[str, Any], dtype: str, qscheme: str | None
) -> None:
    """It makes observers, as torch.ao's classes ask it to."""
    model = nn.Sequential(nn.Linear(IN, OUT))
    told = quantize_dynamic(model, mapping={nn.Linear: Own}, **arguments)[0].told
    observer = told.weight()
    assert str(observer.dtype) == f"torch.{dtype}"
    assert isinstance(told, qc.QConfig)
    assert told.activation() is not None
    if qscheme is None:
        return
    assert str(observer.qscheme) == f"torch.{qscheme}"
    observer(model[0].weight)
    scale, _ = observer.calculate_qparams()
    assert (scale > 0).all()


def test_torch_aos_own_classes_can_be_mapped_to_while_they_exist() -> None:
    dynamic = pytest.importorskip("torch.ao.nn.quantized.dynamic")
    model, x = nn.Sequential(nn.Linear(IN, OUT), nn.Linear(OUT, OUT)), torch.randn(5, IN)
    for spec in (None, {nn.Linear: qc.default_dynamic_qconfig}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its quantized tensors are deprecated
            quantized = quantize_dynamic(model, spec, mapping={nn.Linear: dynamic.Linear})
            y = quantized(x)
        assert type(quantized[0]) is dynamic.Linear
        assert (y - model(x)).norm() < 0.05 * model(x).norm()


def test_a_lazy_layer_is_refused_until_it_has_weights() -> None:
    model = nn.Sequential(nn.Linear(IN, OUT), nn.LazyLinear(5))
    with pytest.raises(ModelError, match=r"1\.weight is not initialized"):
        quantize_dynamic(model)
    x = torch.randn(3, IN)
    wanted = model(x)
    quantized = quantize_dynamic(model)
    assert isinstance(quantized[1], QuantizedLinear)
    assert relative(quantized(x), wanted) < 0.02


BAD: dict[str, tuple[float, dict[str, Any]]] = {
    "nan": (torch.nan, {}),
    "infinity": (torch.inf, {}),
    "normalized": (-torch.inf, {}),
    "beyond float16": (1e5, {"dtype": torch.float16}),
}


@pytest.mark.parametrize("inplace", [True, False])
@pytest.mark.parametrize("bad", BAD)
def test_weights_that_no_layer_can_hold_change_nothing(bad: str, inplace: bool) -> None:
    model, (value, how) = mlp(IN, 32, OUT).train(), BAD[bad]
    if bad == "normalized":
        old_weight_norm(model[2])
        model[2].weight_g.data[3] = value
    else:
        model[2].weight.data[3, 4] = value
    types = [type(module) for module in model]
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(ValueError, match=r"^2: w"):
        quantize_dynamic(model, inplace=inplace, **how)
    assert [type(module) for module in model] == types and model.training
    after = model.state_dict()
    assert all(torch.equal(after[k].nan_to_num(), v.nan_to_num()) for k, v in before.items())
