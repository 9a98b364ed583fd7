"""Whatever is written into a quantized layer counts from the next call on, or raises."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from octavo import Scheme
from octavo.errors import ModelError, NotTrainableError
from octavo.recipe import WeightScheme
from octavo.torch import load, quantize_dynamic, save
from octavo.torch.layers.base import QuantizedModule
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


@pytest.mark.sweep(7)
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


@pytest.mark.sweep(5)
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


# --- the weight, which is computed, and quantized again where it is written ---


def _by_data(w: Any) -> None:
    w.data += 1


WRITES: dict[str, Callable[[Any], Any]] = {
    "data +=": _by_data,
    "data =": lambda w: setattr(w, "data", -2 * w.detach().clone()),
    "data.add_": lambda w: w.data.add_(1),
    "copy_": lambda w: w.copy_(-w.detach().clone()),
    "[...]": lambda w: w.__setitem__(..., 5.0),
    "[0]": lambda w: w.__setitem__(0, 5.0),
    "mask": lambda w: w.__setitem__(w > 0, 5.0),
    "*=": lambda w: w.__imul__(3),
    "out": lambda w: torch.ones(w.shape, out=w),
    "foreach": lambda w: torch._foreach_mul_([w], 2.0),
    "constant_": lambda w: nn.init.constant_(w, 0.25),
    "view": lambda w: w.view(-1)[30:].fill_(1.0),
    "t": lambda w: w.transpose(0, 1).mul_(2),
    "chunk": lambda w: w.detach().chunk(2)[1].fill_(1.0),
    "unbind": lambda w: [row.mul_(2) for row in w.unbind(0)],
    "to": lambda w: w.to(torch.float32).contiguous().fill_(1.0),
    "set_": lambda w: w.set_(torch.ones(w.shape)),
}


def weight_name(kind: str) -> str:
    if kind == "attention":
        return "in_proj_weight"
    if kind.endswith("cell"):
        return "weight_ih"
    return "weight_hh_l0" if kind.split(",", maxsplit=1)[0] in ("lstm", "gru", "rnn") else "weight"


@pytest.mark.sweep(5)
@every_kind
@pytest.mark.parametrize("write", WRITES)
@torch.no_grad()
def test_a_weight_that_is_written_is_held(kind: str, write: str) -> None:
    of, name = KINDS[kind], weight_name(kind)
    layer, x = of.layer(0), of.inputs()
    before = outputs(layer, x)
    wanted = getattr(layer, name)().clone()
    others = {n: b.clone() for n, b in layer.named_buffers() if "bias" in n}
    WRITES[write](wanted)
    WRITES[write](getattr(layer, name))
    found = getattr(layer, name)()
    rows = wanted.flatten(1)
    # A step of the row's integers, or of 16-bit floats.
    step = torch.maximum(rows.amax(1) - rows.amin(1).clamp(max=0), rows.abs().amax(1)) / 127
    assert ((found - wanted).flatten(1).abs() <= step[:, None]).all()
    assert differ(before, outputs(layer, x))
    assert_bits(outputs(layer, x), outputs(copy.deepcopy(layer), x))
    for key, value in others.items():
        assert torch.equal(layer.get_buffer(key), value)


def large(kind: str) -> Kind:
    """Of a kind, a layer whose weights are longer than what is compared of them in each call."""
    return LARGE.get(kind, KINDS[kind])


LARGE = {
    "linear": Kind(lambda: nn.Linear(512, 512), noise(3, 512)),
    "linear, odd": Kind(lambda: nn.Linear(509, 507), noise(3, 509)),
    "linear, affine": Kind(lambda: nn.Linear(512, 512), noise(3, 512), spec={nn.Linear: AFFINE}),
    "linear, half": Kind(lambda: nn.Linear(512, 512), noise(3, 512), torch.float16),
    "lstm": Kind(lambda: nn.LSTM(256, 256), noise(3, 2, 256)),
    "gru": Kind(lambda: nn.GRU(256, 256), noise(3, 2, 256)),
    "embedding": Kind(lambda: nn.Embedding(512, 64), lambda: torch.arange(512), torch.quint8),
    "conv2d": Kind(lambda: nn.Conv2d(64, 256, 3), noise(1, 64, 5, 5)),
    "attention": Kind(lambda: nn.MultiheadAttention(256, 4), lambda: (torch.randn(5, 2, 256),) * 3),
}

ROWS: dict[str, Callable[[Any, int], Any]] = {
    "add_": lambda w, i: w.data[i].add_(0.5),
    "mul_": lambda w, i: w.data[i].mul_(-1),
    "=": lambda w, i: w.__setitem__(i, w()[i] + 0.5),
    "+=": lambda w, i: w.__setitem__(i, w[i].__iadd__(0.5)),
    "data +=": lambda w, i: w.data.__setitem__(i, w.data[i].__iadd__(0.5)),
}


@pytest.mark.sweep(7)
@every_kind
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("inference", [False, True])
def test_one_row_of_a_weight_counts(kind: str, row: str, inference: bool) -> None:
    of, name = large(kind), weight_name(kind)
    with torch.inference_mode(inference), torch.no_grad():
        layer, x = of.layer(0), of.inputs()
        torch._dynamo.reset()
        compiled = torch.compile(layer, backend="eager")
        before = outputs(layer, x)
        assert_bits(outputs(compiled, x), before)
        wanted = getattr(layer, name)().clone()
        at = len(wanted) // 5
        ROWS[row](getattr(layer, name), at)
        wanted[at] = -wanted[at] if row == "mul_" else wanted[at] + 0.5
        step = wanted[at].abs().max() / 127
        assert (getattr(layer, name)()[at] - wanted[at]).abs().max() <= 2 * step
        others = torch.arange(len(wanted)) != at
        # Affine scales are computed from ranges again, in float32.
        torch.testing.assert_close(
            getattr(layer, name)()[others], wanted[others], rtol=1e-5, atol=1e-6
        )
        assert_bits(outputs(layer, x), outputs(copy.deepcopy(layer), x))
        assert_bits(outputs(compiled, x), outputs(layer, x))
        assert differ(before, outputs(layer, x))


@pytest.mark.parametrize("kind", [k for k in LARGE if k not in ("attention", "embedding")])
@pytest.mark.parametrize("where", ["inference", "shared", "version", "page"])
def test_some_integers_that_are_written_count(kind: str, where: str) -> None:
    with torch.inference_mode(where == "inference"):
        layer, x = copy.deepcopy(large(kind).layer(0)), large(kind).inputs()
        if where == "shared":
            layer.share_memory()
        before = outputs(layer, x)
        name = next(n for n in layer._own if n.startswith("packed"))
        flat = getattr(layer, name).view(-1)
        flat = flat.view(torch.int16 if flat.dtype is torch.float16 else torch.uint8)
        size = len(flat)
        if where == "shared":
            flat.numpy()[size // 5 : size // 5 + 40] = 7  # one process stands for another
        elif where == "page":
            flat.data[size // 5 : size // 5 + 2 * max(size // 8, 4096)] = 7
        else:
            flat[size // 5 : size // 5 + 40] = 7
        assert_bits(outputs(layer, x), outputs(copy.deepcopy(layer), x))
        assert differ(before, outputs(layer, x))


@every_kind
def test_a_dtype_that_changes_where_it_lies_counts(kind: str) -> None:
    of = KINDS[kind]
    for key in own_buffers(of.layer(0)):
        layer, x = of.layer(0), of.inputs()
        outputs(layer, x)
        module, name = own_buffers(layer)[key]
        if getattr(module, name).dtype is torch.float32:
            getattr(module, name).data = getattr(module, name).data.view(torch.int32)
            with pytest.raises((ModelError, TypeError, ValueError)):
                outputs(layer, x)


@every_kind
@pytest.mark.parametrize("assign", [False, True])
def test_a_float_state_raises_whether_strict_or_not(kind: str, assign: bool) -> None:
    of = KINDS[kind]
    model, x = nn.Sequential(of.layer(0)), of.inputs()
    before = outputs(model[0], x)
    state = nn.Sequential(of.make()).state_dict()
    for strict in (True, False):
        with pytest.raises(RuntimeError, match=rf"0\.{weight_name(kind)}.* quantize that"):
            model.load_state_dict(state, strict=strict, assign=assign)
        assert_bits(outputs(model[0], x), before)
    model.load_state_dict({"0.other": torch.zeros(1)}, strict=False)
    assert_bits(outputs(model[0], x), before)


def test_a_bias_that_is_gone_is_named() -> None:
    class Twice(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * x

    for take in (
        lambda layer: delattr(layer, "bias"),
        lambda layer: nn.utils.parametrize.register_parametrization(layer, "bias", Twice()),
    ):
        layer, x = KINDS["linear"].layer(0), KINDS["linear"].inputs()
        outputs(layer, x)
        take(layer)
        with pytest.raises(ModelError, match=r"Linear\.bias is no buffer of the layer any more"):
            outputs(layer, x)
        with pytest.raises(ModelError, match=r"Linear\.bias is no buffer of the layer any more"):
            layer.half()


@torch.no_grad()
def test_views_of_one_weight_see_what_each_other_write() -> None:
    layer = KINDS["linear"].layer(0)
    before = layer.weight().clone()
    first, second, row = layer.weight.detach(), layer.weight.detach(), layer.weight[5]
    first.add_(1.0)
    second.add_(2.0)
    first.mul_(2.0)
    wanted = 2 * (before + 3)
    near = 2 * wanted.abs().amax(1, keepdim=True) / 127
    for found, expected in ((layer.weight(), wanted), (row * 1, wanted[5]), (row(), wanted[5])):
        assert ((found - expected).abs() <= near[5 if expected.dim() == 1 else ...]).all()
    assert torch.equal(row.clone(), layer.weight()[5])
    layer.load_state_dict(KINDS["linear"].layer(1).state_dict())
    assert torch.equal(second.clone(), layer.weight())


def test_a_change_is_judged_for_each_channel() -> None:
    layer = KINDS["linear"].layer(0)
    before = layer.weight().clone()
    much, little = torch.zeros(32, 64), torch.full((32, 64), 1e-5)
    much[0] = little[0] = 1.0
    with pytest.raises(NotTrainableError, match=r"[\d]+% of what was written into channel [1-9]"):
        layer.weight.data += little
    assert torch.equal(layer.weight(), before)
    layer.weight.data += much
    assert torch.equal(layer.weight()[1:], before[1:])
    noise = before * (1 + 1e-7)  # as arithmetic in float32 leaves it
    noise[3] = 2.0
    layer.weight.data = noise
    assert torch.allclose(layer.weight()[3], torch.tensor(2.0))


REFUSED: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda w: w.detach().cpu().numpy().__setitem__(0, 1.0),
    "dlpack": lambda w: torch.from_dlpack(w.detach()).zero_(),
    "requires_grad": lambda w: w.requires_grad_(),
    "requires_grad =": lambda w: setattr(w, "requires_grad", True),
    "resize_": lambda w: w.resize_(3),
    "shape": lambda w: setattr(w, "data", torch.zeros(3)),
    "nan": lambda w: w.__setitem__(0, float("nan")),
    "too little": lambda w: w.add_(1e-9),
    "too little, of a view": lambda w: w.view(-1)[5:].add_(1e-9),
}


@every_kind
@pytest.mark.parametrize("write", REFUSED)
@torch.no_grad()
def test_what_a_weight_cannot_hold_raises(kind: str, write: str) -> None:
    of, name = KINDS[kind], weight_name(kind)
    layer, x = of.layer(0), of.inputs()
    before, held = outputs(layer, x), getattr(layer, name)().clone()
    weight = getattr(layer, name)
    said = r"written|read-only|train|shape|NaN|lost"
    with pytest.raises((NotTrainableError, ValueError, BufferError), match=said):
        REFUSED[write](weight)
    assert torch.equal(getattr(layer, name)(), held)
    assert_bits(outputs(layer, x), before)


@torch.no_grad()
def test_adapters_can_be_merged_and_taken_out_again() -> None:
    model = quantize_dynamic(nn.Sequential(nn.Linear(64, 32)))
    base, x = model[0], torch.randn(5, 64)
    before, exact = base(x), base.weight().clone()
    delta = torch.randn(32, 4) @ torch.randn(4, 64) * 0.05
    base.weight.data += delta
    near = (exact + delta).abs().amax(1) / 127
    assert ((base.weight() - exact - delta).abs() <= near[:, None]).all()
    assert (base(x) - before - x @ delta.t()).norm() < 0.02 * (x @ delta.t()).norm()
    base.weight.data = base.weight.data.clone() - delta
    assert (base(x) - before).norm() < 0.03 * before.norm()
    with pytest.raises(NotTrainableError, match="works unmerged"):
        base.weight.data += 1e-5 * delta


@torch.no_grad()
def test_peft_merges_into_a_quantized_base() -> None:
    peft = pytest.importorskip("peft")
    given = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8))
    adapted = peft.get_peft_model(given, peft.LoraConfig(target_modules=["0", "2"], r=4))
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.3)
    x, apart = (
        torch.randn(5, 64),
        quantize_dynamic(adapted.eval(), {"base_model.model.0.base_layer"}),
    )
    exact = apart(x)
    apart.merge_adapter()
    assert (apart(x) - exact).norm() < 0.03 * exact.norm()
    apart.unmerge_adapter()
    assert (apart(x) - exact).norm() < 0.03 * exact.norm()
    merged = apart.merge_and_unload()
    assert isinstance(merged[0], QuantizedModule)
    assert (merged(x) - exact).norm() < 0.03 * exact.norm()


@torch.no_grad()
def test_parts_of_one_weight_that_are_written_in_turn_all_count() -> None:
    layer = KINDS["linear"].layer(0)
    weight = layer.weight
    first, second = weight[:16], weight[16:]  # both read before one is written
    first.fill_(1.0)
    second.fill_(2.0)
    layer.weight[0] = 3.0
    assert [round(v, 2) for v in layer.weight()[:, 0].tolist()] == [3.0, *[1.0] * 15, *[2.0] * 16]


@torch.no_grad()
def test_a_layer_from_an_older_pickle_can_be_written() -> None:
    layer, x = KINDS["linear"].layer(0), KINDS["linear"].inputs()
    del layer.__dict__["_own"]
    again = pickle.loads(pickle.dumps(layer))
    assert_bits(outputs(again, x), outputs(KINDS["linear"].layer(0), x))
    again.weight.data.fill_(1.0)
    torch.testing.assert_close(again.weight(), torch.ones(32, 64))


@torch.no_grad()
def test_layers_that_share_a_weight_share_what_is_written() -> None:
    tied = nn.ModuleList([nn.Linear(16, 16), nn.Linear(16, 16)])
    tied[1].weight = tied[0].weight
    first, second = quantize_dynamic(tied)
    x = torch.randn(3, 16)
    second(x)
    first.weight.data += 1
    assert torch.equal(first.weight(), second.weight())
    assert_bits(second(x), copy.deepcopy(second)(x))


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


def test_what_is_made_in_inference_mode_is_as_fast_as_ever(tmp_path: Path) -> None:
    """Its buffers are no inference tensors, all of whose bytes each call would look at."""
    with torch.inference_mode():
        model = quantize_dynamic(nn.Sequential(nn.Linear(64, 64)))
        save(model, tmp_path / "q.safetensors")
        loaded = load(tmp_path / "q.safetensors", lambda: nn.Sequential(nn.Linear(64, 64)))
    for made in (model, loaded):
        assert not any(buffer.is_inference() for buffer in made.buffers())
