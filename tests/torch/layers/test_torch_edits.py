"""Whatever is written into a quantized layer's buffers counts from the next call on, or raises."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from octavo import Scheme
from octavo.errors import ModelError
from octavo.recipe import WeightScheme
from octavo.torch import load, quantize_dynamic, save
from octavo.torch.layers.base import QuantizedModule
from tests.models import Doubled, assert_bits

AFFINE = Scheme(WeightScheme(symmetric=False))


@dataclass(frozen=True)
class Kind:
    """Layers of one kind: how the float one is made and quantized, and the shape of an input."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    dtype: Any = torch.qint8
    spec: Any = None

    def layer(self, seed: int = 0) -> Any:
        """A quantized layer that was never called."""
        torch.manual_seed(seed)
        model = nn.Sequential(self.make())
        spec = self.spec or {type(model[0])}
        return quantize_dynamic(model, spec, dtype=self.dtype)[0]

    def inputs(self) -> tuple[Tensor, ...]:
        if self.dtype is torch.quint8:
            count = torch.Size(self.shape).numel()
            return ((torch.arange(count) * 8 % 200).reshape(self.shape),)
        torch.manual_seed(9)
        x = torch.randn(self.shape)
        return (x, x, x) if isinstance(self.make(), nn.MultiheadAttention) else (x,)


HALF, TABLE = torch.float16, torch.quint8

# Of numbers of outputs that fill blocks of 16, and of others: only the first are read live.
KINDS = {
    "linear": Kind(lambda: nn.Linear(64, 32), (3, 64)),
    "linear, odd": Kind(lambda: nn.Linear(61, 27), (3, 61)),
    "linear, affine": Kind(lambda: nn.Linear(64, 32), (3, 64), spec={nn.Linear: AFFINE}),
    "linear, half": Kind(lambda: nn.Linear(61, 27), (3, 61), HALF),
    "lstm": Kind(lambda: nn.LSTM(32, 16, 2, bidirectional=True), (4, 2, 32)),
    "lstm, projected": Kind(lambda: nn.LSTM(20, 19, proj_size=9), (4, 2, 20)),
    "gru": Kind(lambda: nn.GRU(32, 16), (4, 2, 32)),
    "gru, half": Kind(lambda: nn.GRU(32, 16), (4, 2, 32), HALF),
    "rnn": Kind(lambda: nn.RNN(31, 17), (4, 2, 31)),
    "lstm cell": Kind(lambda: nn.LSTMCell(32, 16), (2, 32)),
    "gru cell": Kind(lambda: nn.GRUCell(31, 17), (2, 31)),
    "rnn cell": Kind(lambda: nn.RNNCell(31, 17), (2, 31)),
    "embedding": Kind(lambda: nn.Embedding(200, 24), (3, 5), TABLE),
    "bag": Kind(lambda: nn.EmbeddingBag(200, 24), (3, 5), TABLE),
    "conv1d": Kind(lambda: nn.Conv1d(32, 16, 3), (2, 32, 9)),
    "conv2d": Kind(lambda: nn.Conv2d(31, 17, 3), (2, 31, 5, 5)),
    "conv2d, depthwise": Kind(lambda: nn.Conv2d(32, 32, 3, groups=32), (2, 32, 5, 5)),
    "attention": Kind(lambda: nn.MultiheadAttention(32, 2), (5, 2, 32)),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
LARGE = {  # with weights longer than what is compared of them in each call
    "linear": Kind(lambda: nn.Linear(512, 512), (3, 512)),
    "linear, odd": Kind(lambda: nn.Linear(509, 507), (3, 509)),
    "linear, affine": Kind(lambda: nn.Linear(512, 512), (3, 512), spec={nn.Linear: AFFINE}),
    "linear, half": Kind(lambda: nn.Linear(512, 512), (3, 512), HALF),
    "lstm": Kind(lambda: nn.LSTM(256, 256), (3, 2, 256)),
    "gru": Kind(lambda: nn.GRU(256, 256), (3, 2, 256)),
    "embedding": Kind(lambda: nn.Embedding(200, 256), (200,), TABLE),
    "conv2d": Kind(lambda: nn.Conv2d(64, 256, 3), (1, 64, 5, 5)),
    "attention": Kind(lambda: nn.MultiheadAttention(256, 4), (5, 2, 256)),
}


def weight_name(kind: str) -> str:
    """The weight of a layer that the tests write to."""
    if kind == "attention":
        return "in_proj_weight"
    if kind.endswith("cell"):
        return "weight_ih"
    return "weight_hh_l0" if kind.split(",", maxsplit=1)[0] in ("lstm", "gru", "rnn") else "weight"


def own_buffers(layer: nn.Module) -> dict[str, tuple[nn.Module, str]]:
    """Where a layer and the layers in it hold what is quantized."""
    return {
        f"{prefix}.{name}": (module, name)
        for prefix, module in layer.named_modules()
        if isinstance(module, QuantizedModule)
        for name, buffer in module._buffers.items()
        if buffer is not None
    }


def outputs(call: Any, inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
    with torch.no_grad():
        return tuple(tree_leaves(call(*inputs)))


def as_a_copy(layer: Any, x: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """What the layer computes; a copy, which was never called, has nothing to be out of date."""
    found = outputs(layer, x)
    assert_bits(found, outputs(copy.deepcopy(layer), x))
    return found


def differ(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> bool:
    return any(not torch.equal(one, other) for one, other in zip(a, b, strict=True))


EDITS: dict[str, Callable[[Any, str, Tensor], Any]] = {
    "copy_": lambda m, n, new: getattr(m, n).copy_(new),
    "data.copy_": lambda m, n, new: getattr(m, n).data.copy_(new),
    "data": lambda m, n, new: setattr(getattr(m, n), "data", new.clone()),
    "attribute": lambda m, n, new: setattr(m, n, new.clone()),
    "detach().copy_": lambda m, n, new: getattr(m, n).detach().copy_(new),
    "index": lambda m, n, new: getattr(m, n).__setitem__(..., new),
    "set_": lambda m, n, new: getattr(m, n).set_(new.clone()),
    "swap_tensors": lambda m, n, new: torch.utils.swap_tensors(getattr(m, n), new.clone()),
    "numpy": lambda m, n, new: getattr(m, n).numpy().__setitem__(..., new.numpy()),
    "strided": lambda m, n, new: setattr(m, n, torch.stack([new, new], -1)[..., 0]),
}


@pytest.mark.sweep(11)
@every_kind
@pytest.mark.parametrize("edit", EDITS)
def test_each_buffer_that_is_written_counts(kind: str, edit: str) -> None:
    of = KINDS[kind]
    layer, other, x = of.layer(0), of.layer(1), of.inputs()
    outputs(layer, x)
    theirs = own_buffers(other)
    for key, (module, name) in own_buffers(layer).items():
        new = getattr(*theirs[key])
        EDITS[edit](module, name, new)
        assert torch.equal(getattr(module, name), new)
        as_a_copy(layer, x)
    assert_bits(outputs(layer, x), outputs(other, x))


@pytest.mark.sweep(11)
@every_kind
@pytest.mark.parametrize("edit", ["copy_", "data.copy_", "data", "attribute"])
def test_compiled_layers_see_what_is_written(kind: str, edit: str) -> None:
    of = KINDS[kind]
    layer, other, x = of.layer(0), of.layer(1), of.inputs()
    torch._dynamo.reset()
    compiled = torch.compile(layer, backend="eager")
    before = outputs(compiled, x)
    theirs = own_buffers(other)
    for key, (module, name) in own_buffers(layer).items():
        EDITS[edit](module, name, getattr(*theirs[key]))
        assert_bits(outputs(compiled, x), outputs(layer, x))
    assert_bits(outputs(compiled, x), outputs(other, x))
    assert differ(before, outputs(compiled, x))


@every_kind
def test_one_element_counts(kind: str) -> None:
    layer, x = KINDS[kind].layer(), KINDS[kind].inputs()
    outputs(layer, x)
    state = layer.state_dict()
    for i, (key, (module, name)) in enumerate(own_buffers(layer).items()):
        tensor = getattr(module, name)
        if name == "packed" and kind in ("linear", "conv2d"):
            before = outputs(layer, x)
            tensor[5] += 50
            assert differ(before, as_a_copy(layer, x))
        elif tensor.dim() == 1 and tensor.is_floating_point() and "packed" not in name:
            held = state[key.removeprefix(".")]
            ways = (tensor, tensor.data, tensor.detach(), held, tensor.numpy())
            for reached in ways if i < 3 else (ways[i % 5],):
                reached[-1] += 3.0
                as_a_copy(layer, x)


@every_kind
@pytest.mark.parametrize("assign", [False, True])
def test_a_state_that_is_loaded_or_copied_counts(kind: str, assign: bool) -> None:
    of = KINDS[kind]
    for inference in (False, True):
        with torch.inference_mode(inference):
            layer, other, x = of.layer(0), of.layer(1), of.inputs()
            outputs(layer, x)
            held, given = layer.state_dict(), other.state_dict()
            if assign:
                layer.load_state_dict(copy.deepcopy(given), assign=True)
            else:
                for name, value in given.items():
                    held[name].copy_(value)
            assert_bits(outputs(layer, x), outputs(other, x))


@pytest.mark.parametrize("compiled", [False, True])
def test_loaded_state_is_seen_by_all_who_share_it(compiled: bool) -> None:
    torch.manual_seed(0)
    tied = nn.ModuleList([nn.Linear(16, 8), nn.Linear(16, 8)])
    tied[1].weight = tied[0].weight
    for inference in (False, True):
        with torch.inference_mode(inference):
            model, other = quantize_dynamic(tied), quantize_dynamic(nn.Linear(16, 8))
        assert model[0].packed is model[1].packed
        calls: Any = list(model)
        if compiled:
            torch._dynamo.reset()
            calls = [torch.compile(m, backend="aot_eager", fullgraph=True) for m in model]
        x = torch.randn(3, 16)
        with torch.inference_mode():
            before = [call(x) for call in calls]
            state = {k: v for k, v in other.state_dict().items() if k != "bias"}
            model[0].load_state_dict(state, strict=False)
            for call, layer, old in zip(calls, model, before, strict=True):
                assert torch.equal(call(x), copy.deepcopy(layer)(x))
                assert not torch.equal(call(x), old)


@pytest.mark.parametrize("called", [False, True])
def test_functional_call_uses_the_state_it_is_given(called: bool) -> None:
    of = KINDS["linear"]
    layer, other, x = of.layer(0), of.layer(1), of.inputs()
    if called:
        outputs(layer, x)
    with torch.no_grad():
        borrowed = torch.func.functional_call(layer, dict(other.named_buffers()), x)
    assert torch.equal(borrowed, *outputs(other, x))
    as_a_copy(layer, x)


@pytest.mark.parametrize("value", [torch.zeros(32, dtype=torch.float64), torch.zeros(7)])
def test_a_vector_of_another_form_is_refused(value: Tensor) -> None:
    layer, x = KINDS["linear"].layer(), KINDS["linear"].inputs()
    outputs(layer, x)
    layer.bias = value
    with pytest.raises((ModelError, TypeError, ValueError), match="bias"):
        outputs(layer, x)


def test_a_parameter_in_the_place_of_a_buffer_is_a_buffer() -> None:
    layer, x = KINDS["linear"].layer(), KINDS["linear"].inputs()
    (before,) = outputs(layer, x)
    given = nn.Parameter(layer.bias + 5)
    layer.bias = given
    assert not list(layer.parameters())
    torch.testing.assert_close(outputs(layer, x)[0], before + 5)
    given.data += 1
    torch.testing.assert_close(outputs(layer, x)[0], before + 6)


@pytest.mark.parametrize("kind", [k for k in LARGE if k not in ("attention", "embedding")])
@pytest.mark.parametrize("where", ["inference", "shared", "version", "page"])
def test_some_integers_that_are_written_count(kind: str, where: str) -> None:
    with torch.inference_mode(where == "inference"):
        layer, x = copy.deepcopy(LARGE[kind].layer()), LARGE[kind].inputs()
        if where == "shared":
            layer.share_memory()
        before = outputs(layer, x)
        name = next(n for n in layer._own if n.startswith("packed"))
        flat = getattr(layer, name).view(-1)
        flat = flat.view(torch.int16 if flat.dtype is HALF else torch.uint8)
        at, size = len(flat) // 5, len(flat)
        if where == "shared":
            flat.numpy()[at : at + 40] = 7  # one process stands for another
        elif where == "page":
            flat.data[at : at + 2 * max(size // 8, 4096)] = 7
        else:
            flat[at : at + 40] = 7
        assert differ(before, as_a_copy(layer, x))


@every_kind
def test_a_dtype_that_changes_where_it_lies_is_refused(kind: str) -> None:
    layer, x = KINDS[kind].layer(), KINDS[kind].inputs()
    outputs(layer, x)
    for module, name in own_buffers(layer).values():
        held = getattr(module, name)
        if held.dtype is torch.float32:
            held.data = held.data.view(torch.int32)
            with pytest.raises((ModelError, TypeError, ValueError)):
                outputs(layer, x)
            held.data = held.data.view(torch.float32)


@every_kind
def test_a_float_state_raises_whether_strict_or_not(kind: str) -> None:
    of = KINDS[kind]
    model, x = nn.Sequential(of.layer()), of.inputs()
    before = outputs(model[0], x)
    state = nn.Sequential(of.make()).state_dict()
    for strict, assign in ((True, False), (False, False), (True, True), (False, True)):
        with pytest.raises(RuntimeError, match=rf"0\.{weight_name(kind)}.* quantize that"):
            model.load_state_dict(state, strict=strict, assign=assign)
        assert_bits(outputs(model[0], x), before)
    model.load_state_dict({"0.other": torch.zeros(1)}, strict=False)
    assert_bits(outputs(model[0], x), before)


@pytest.mark.parametrize(
    "take",
    [
        lambda layer: delattr(layer, "bias"),
        lambda layer: nn.utils.parametrize.register_parametrization(layer, "bias", Doubled()),
    ],
    ids=["deleted", "parametrized"],
)
def test_a_bias_that_is_gone_is_named(take: Callable[[Any], object]) -> None:
    layer, x = KINDS["linear"].layer(), KINDS["linear"].inputs()
    outputs(layer, x)
    take(layer)
    for use in (lambda: outputs(layer, x), layer.half):
        with pytest.raises(ModelError, match=r"Linear\.bias is no buffer"):
            use()


def test_what_is_made_in_inference_mode_is_as_fast_as_ever(tmp_path: Path) -> None:
    """Its buffers are no inference tensors, all of whose bytes each call would look at."""
    with torch.inference_mode():
        model = quantize_dynamic(nn.Sequential(nn.Linear(64, 64)))
        save(model, tmp_path / "q.safetensors")
        loaded = load(tmp_path / "q.safetensors", lambda: nn.Sequential(nn.Linear(64, 64)))
    for made in (model, loaded):
        assert not any(buffer.is_inference() for buffer in made.buffers())
