"""Whatever is written into a quantized layer counts from the next call on, or raises."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from octavo import Scheme
from octavo.errors import ModelError, NotTrainableError
from octavo.recipe import WeightScheme
from octavo.torch import quantize_dynamic
from octavo.torch.modules._base import QuantizedModule
from tests.torch.behaviour import assert_bits

AFFINE = Scheme(WeightScheme(symmetric=False))


@dataclass(frozen=True)
class Kind:
    """Layers of one kind: how the float one is made and quantized, and an input."""

    make: Callable[[], nn.Module]
    x: Callable[[], Any]
    dtype: Any = torch.qint8
    spec: Any = None

    def layer(self, seed: int) -> Any:
        """A quantized layer that was never called."""
        torch.manual_seed(seed)
        model = nn.Sequential(self.make())
        spec = self.spec or {type(model[0])}
        return quantize_dynamic(model, spec, dtype=self.dtype)[0]

    def inputs(self) -> tuple[Any, ...]:
        torch.manual_seed(9)
        made = self.x()
        return made if isinstance(made, tuple) else (made,)


def ids(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randint(0, 200, shape)


def noise(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(*shape)


# Of numbers of outputs that fill blocks of 16, and of others: only the first are read live.
KINDS = {
    "linear": Kind(lambda: nn.Linear(64, 32), noise(3, 64)),
    "linear, odd": Kind(lambda: nn.Linear(61, 27), noise(3, 61)),
    "linear, affine": Kind(lambda: nn.Linear(64, 32), noise(3, 64), spec={nn.Linear: AFFINE}),
    "linear, half": Kind(lambda: nn.Linear(61, 27), noise(3, 61), torch.float16),
    "lstm": Kind(lambda: nn.LSTM(32, 16, 2, bidirectional=True), noise(4, 2, 32)),
    "lstm, projected": Kind(lambda: nn.LSTM(20, 19, proj_size=9), noise(4, 2, 20)),
    "gru": Kind(lambda: nn.GRU(32, 16), noise(4, 2, 32)),
    "gru, half": Kind(lambda: nn.GRU(32, 16), noise(4, 2, 32), torch.float16),
    "rnn": Kind(lambda: nn.RNN(31, 17), noise(4, 2, 31)),
    "lstm cell": Kind(lambda: nn.LSTMCell(32, 16), noise(2, 32)),
    "gru cell": Kind(lambda: nn.GRUCell(31, 17), noise(2, 31)),
    "rnn cell": Kind(lambda: nn.RNNCell(31, 17), noise(2, 31)),
    "embedding": Kind(lambda: nn.Embedding(200, 24), ids(3, 5), torch.quint8),
    "bag": Kind(lambda: nn.EmbeddingBag(200, 24), ids(3, 5), torch.quint8),
    "conv1d": Kind(lambda: nn.Conv1d(32, 16, 3), noise(2, 32, 9)),
    "conv2d": Kind(lambda: nn.Conv2d(31, 17, 3), noise(2, 31, 5, 5)),
    "conv2d, depthwise": Kind(lambda: nn.Conv2d(32, 32, 3, groups=32), noise(2, 32, 5, 5)),
    "attention": Kind(lambda: nn.MultiheadAttention(32, 2), lambda: (torch.randn(5, 2, 32),) * 3),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def own_buffers(layer: nn.Module) -> dict[str, tuple[nn.Module, str]]:
    """Where a layer and the layers in it hold what is quantized."""
    return {
        f"{prefix}.{name}": (module, name)
        for prefix, module in layer.named_modules()
        if isinstance(module, QuantizedModule)
        for name, buffer in module._buffers.items()
        if buffer is not None
    }


def _by_numpy(module: Any, name: str, new: Tensor) -> None:
    array = getattr(module, name).numpy()
    array[...] = new.numpy()


EDITS: dict[str, Callable[[Any, str, Tensor], Any]] = {
    "copy_": lambda m, n, new: getattr(m, n).copy_(new),
    "data.copy_": lambda m, n, new: getattr(m, n).data.copy_(new),
    "data": lambda m, n, new: setattr(getattr(m, n), "data", new.clone()),
    "detach().copy_": lambda m, n, new: getattr(m, n).detach().copy_(new),
    "index": lambda m, n, new: getattr(m, n).__setitem__(..., new),
    "set_": lambda m, n, new: getattr(m, n).set_(new.clone()),
    "swap_tensors": lambda m, n, new: torch.utils.swap_tensors(getattr(m, n), new.clone()),
    "numpy": _by_numpy,
    "attribute": lambda m, n, new: setattr(m, n, new.clone()),
    "strided": lambda m, n, new: setattr(m, n, torch.stack([new, new], -1)[..., 0]),
}


def outputs(call: Any, inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
    with torch.no_grad():
        made = call(*inputs)
    flat: tuple[Tensor, ...] = tuple(torch.utils._pytree.tree_leaves(made))
    return flat


def differ(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> bool:
    return any(not torch.equal(one, other) for one, other in zip(a, b, strict=True))


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
        # One that was never called has nothing to be out of date.
        assert_bits(outputs(layer, x), outputs(copy.deepcopy(layer), x))
    assert_bits(outputs(layer, x), outputs(other, x))


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
@pytest.mark.parametrize("through", ["itself", "data", "detach()", "state_dict", "numpy"])
def test_one_element_of_a_vector_counts(kind: str, through: str) -> None:
    of = KINDS[kind]
    layer, x = of.layer(0), of.inputs()
    outputs(layer, x)
    state = layer.state_dict()
    for key, (module, name) in own_buffers(layer).items():
        tensor = getattr(module, name)
        if tensor.dim() != 1 or not tensor.is_floating_point() or "packed" in name:
            continue
        reached: Any = {
            "itself": lambda t=tensor: t,
            "data": lambda t=tensor: t.data,
            "detach()": lambda t=tensor: t.detach(),
            "state_dict": lambda k=key: state[k.removeprefix(".")],
            "numpy": lambda t=tensor: t.numpy(),
        }[through]()
        reached[-1] += 3.0
        assert_bits(outputs(layer, x), outputs(copy.deepcopy(layer), x))


def test_one_integer_that_is_written_through_torch_counts() -> None:
    for kind in ("linear", "lstm", "conv2d"):
        of = KINDS[kind]
        layer, x = of.layer(0), of.inputs()
        before = outputs(layer, x)
        for module, name in own_buffers(layer).values():
            if name.startswith("packed"):
                getattr(module, name)[5] += 50
        assert differ(before, outputs(layer, x))
        assert_bits(outputs(layer, x), outputs(copy.deepcopy(layer), x))


@every_kind
@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("inference", [False, True])
def test_a_state_that_is_loaded_or_copied_counts(kind: str, assign: bool, inference: bool) -> None:
    of = KINDS[kind]
    with torch.inference_mode(inference):
        layer, other, x = of.layer(0), of.layer(1), of.inputs()
        outputs(layer, x)
        if assign:
            layer.load_state_dict(copy.deepcopy(other.state_dict()), assign=True)
        else:
            for to, value in zip(
                layer.state_dict().values(), other.state_dict().values(), strict=True
            ):
                to.copy_(value)
        assert_bits(outputs(layer, x), outputs(other, x))


@pytest.mark.parametrize("value", [torch.zeros(32, dtype=torch.float64), torch.zeros(7)])
def test_a_vector_of_another_form_is_refused(value: Tensor) -> None:
    layer, x = KINDS["linear"].layer(0), KINDS["linear"].inputs()
    outputs(layer, x)
    layer.bias = value
    with pytest.raises((ModelError, TypeError, ValueError), match="bias"):
        outputs(layer, x)


def test_a_parameter_in_the_place_of_a_buffer_is_a_buffer() -> None:
    layer, x = KINDS["linear"].layer(0), KINDS["linear"].inputs()
    (before,) = outputs(layer, x)
    given = nn.Parameter(layer.bias + 5)
    layer.bias = given
    assert not list(layer.parameters())
    torch.testing.assert_close(outputs(layer, x)[0], before + 5)
    given.data += 1
    torch.testing.assert_close(outputs(layer, x)[0], before + 6)


def test_averaged_models_follow() -> None:
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    def model(seed: int) -> Any:
        torch.manual_seed(seed)
        return quantize_dynamic(nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32)), {nn.Linear})

    first, second, x = model(0), model(1), torch.randn(3, 64)
    averaged = AveragedModel(first, multi_avg_fn=get_ema_multi_avg_fn(0.5))
    with torch.no_grad():
        averaged(x)
        averaged.update_parameters(first)
        averaged.update_parameters(second)  # copies buffers
        assert torch.equal(averaged.module[0](x), second[0](x))


# --- the weight, which is computed ---

WRITES: dict[str, Callable[[Any], Any]] = {
    "data +=": lambda w: setattr(w, "data", w.data + 1),
    "data.add_": lambda w: w.data.add_(1),
    "copy_": lambda w: w.copy_(torch.zeros_like(w)),
    "[...]": lambda w: w.__setitem__(..., 5.0),
    "[0]": lambda w: w.__setitem__(0, 5.0),
    "mask": lambda w: w.__setitem__(w > 0, 5.0),
    "+=": lambda w: w.__iadd__(1),
    "out": lambda w: torch.zeros(w.shape, out=w),
    "foreach": lambda w: torch._foreach_mul_([w], 2.0),
    "uniform_": nn.init.uniform_,
    "normal_": nn.init.normal_,
    "view": lambda w: w.view(-1)[3:].zero_(),
    "t": lambda w: w.transpose(0, 1).mul_(2),
    "chunk": lambda w: w.detach().chunk(2)[1].zero_(),
    "unbind": lambda w: w.unbind(0)[0].zero_(),
    "to": lambda w: w.to(torch.float32).contiguous().zero_(),
    "numpy": lambda w: w.detach().cpu().numpy().__setitem__(0, 1.0),
    "dlpack": lambda w: torch.from_dlpack(w.detach()).zero_(),
    "requires_grad": lambda w: w.requires_grad_(),
}


@every_kind
@pytest.mark.parametrize("write", WRITES)
def test_a_written_weight_raises(kind: str, write: str) -> None:
    layer = KINDS[kind].layer(0)
    name = {"lstm": "weight_hh_l0", "gru": "weight_hh_l0", "rnn": "weight_hh_l0"}.get(
        kind.partition(",")[0], "weight"
    )
    name = "weight_ih" if kind.endswith("cell") else name
    name = "in_proj_weight" if kind == "attention" else name
    before = getattr(layer, name)().clone()
    with pytest.raises(
        (NotTrainableError, ValueError, BufferError), match=r"written|read-only|train"
    ):
        WRITES[write](getattr(layer, name))
    assert torch.equal(getattr(layer, name)(), before)


def test_what_adapters_do_to_merge_is_refused_by_name() -> None:
    model = quantize_dynamic(nn.Sequential(nn.Linear(64, 32)))
    base, delta = model[0], torch.ones(32, 64)
    with pytest.raises(NotTrainableError, match="merge adapters"):
        base.weight.data += delta  # merge_adapter
    with pytest.raises(NotTrainableError, match="merge adapters"):
        base.weight.data = base.weight.data.clone() + delta  # merge with safe_merge=True
    with pytest.raises(NotTrainableError, match="merge adapters"):
        base.weight.data -= delta  # unmerge


def test_reading_a_weight_in_any_way_gives_its_values() -> None:
    weight = KINDS["linear"].layer(0).weight
    values = weight()
    for found in (weight.data, weight.detach(), weight.float(), weight.cpu(), weight.contiguous()):
        assert found.shape == values.shape
        assert torch.equal(found * 1, values)
        assert torch.equal(found.clone(), values)
    assert torch.equal(weight.t() @ torch.ones(32), values.t() @ torch.ones(32))
    assert torch.equal(torch.cat([weight[:3], weight[3:]]), values)
    made = weight.clone()
    made += 1
    assert torch.equal(made, values + 1)
    assert torch.equal(copy.deepcopy(weight), values)
