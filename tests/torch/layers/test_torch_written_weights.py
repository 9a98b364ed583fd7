"""The weight of a quantized layer is computed when it is read, and quantized anew when written."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

from octavo.errors import NotTrainableError
from octavo.torch import quantize_dynamic
from tests.models import assert_bits
from tests.torch.layers.test_torch_edits import (
    KINDS,
    LARGE,
    as_a_copy,
    differ,
    every_kind,
    outputs,
    weight_name,
)


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


@pytest.mark.sweep(11)
@every_kind
@pytest.mark.parametrize("write", WRITES)
@torch.no_grad()
def test_a_weight_that_is_written_is_held(kind: str, write: str) -> None:
    of, name = KINDS[kind], weight_name(kind)
    layer, x = of.layer(), of.inputs()
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
    assert differ(before, as_a_copy(layer, x))
    for key, value in others.items():
        assert torch.equal(layer.get_buffer(key), value)


ROWS: dict[str, Callable[[Any, int], Any]] = {
    "add_": lambda w, i: w.data[i].add_(0.5),
    "mul_": lambda w, i: w.data[i].mul_(-1),
    "=": lambda w, i: w.__setitem__(i, w()[i] + 0.5),
    "+=": lambda w, i: w.__setitem__(i, w[i].__iadd__(0.5)),
    "data +=": lambda w, i: w.data.__setitem__(i, w.data[i].__iadd__(0.5)),
}


@pytest.mark.sweep(23)
@every_kind
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("inference", [False, True])
def test_one_row_of_a_weight_counts(kind: str, row: str, inference: bool) -> None:
    of, name = LARGE.get(kind, KINDS[kind]), weight_name(kind)
    with torch.inference_mode(inference), torch.no_grad():
        layer, x = of.layer(), of.inputs()
        torch._dynamo.reset()
        compiled = torch.compile(layer, backend="eager")
        before = outputs(layer, x)
        assert_bits(outputs(compiled, x), before)
        wanted = getattr(layer, name)().clone()
        at = len(wanted) // 5
        ROWS[row](getattr(layer, name), at)
        wanted[at] = -wanted[at] if row == "mul_" else wanted[at] + 0.5
        step = wanted[at].abs().max() / 127
        found = getattr(layer, name)()
        assert (found[at] - wanted[at]).abs().max() <= 2 * step
        others = torch.arange(len(wanted)) != at
        # Affine scales are computed from ranges again, in float32.
        torch.testing.assert_close(found[others], wanted[others], rtol=1e-5, atol=1e-6)
        assert differ(before, as_a_copy(layer, x))
        assert_bits(outputs(compiled, x), outputs(layer, x))


@torch.no_grad()
def test_views_of_one_weight_see_what_each_other_write() -> None:
    layer = KINDS["linear"].layer()
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


@torch.no_grad()
def test_parts_of_one_weight_that_are_written_in_turn_all_count() -> None:
    layer = KINDS["linear"].layer()
    first, second = layer.weight[:16], layer.weight[16:]  # both read before one is written
    first.fill_(1.0)
    second.fill_(2.0)
    layer.weight[0] = 3.0
    assert [round(v, 2) for v in layer.weight()[:, 0].tolist()] == [3.0, *[1.0] * 15, *[2.0] * 16]


def test_a_change_is_judged_for_each_channel() -> None:
    layer = KINDS["linear"].layer()
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
@torch.no_grad()
def test_what_a_weight_cannot_hold_raises(kind: str) -> None:
    of, name = KINDS[kind], weight_name(kind)
    layer, x = of.layer(), of.inputs()
    before, held = outputs(layer, x), getattr(layer, name)().clone()
    for write in REFUSED.values():
        said = r"written|read-only|train|shape|NaN|lost"
        with pytest.raises((NotTrainableError, ValueError, BufferError), match=said):
            write(getattr(layer, name))
        assert torch.equal(getattr(layer, name)(), held)
        assert_bits(outputs(layer, x), before)


@torch.no_grad()
def test_adapters_can_be_merged_and_taken_out_again() -> None:
    base, x = KINDS["linear"].layer(), torch.randn(5, 64)
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
def test_a_layer_from_an_older_pickle_can_be_written() -> None:
    layer, x = KINDS["linear"].layer(), KINDS["linear"].inputs()
    del layer.__dict__["_own"]
    again = pickle.loads(pickle.dumps(layer))
    assert_bits(outputs(again, x), outputs(KINDS["linear"].layer(), x))
    again.weight.data.fill_(1.0)
    torch.testing.assert_close(again.weight(), torch.ones(32, 64))


@torch.no_grad()
def test_layers_that_share_a_weight_share_what_is_written() -> None:
    tied = nn.ModuleList([nn.Linear(16, 16), nn.Linear(16, 16)])
    tied[1].weight = tied[0].weight
    first, second = quantize_dynamic(tied)
    x = (torch.randn(3, 16),)
    outputs(second, x)
    first.weight.data += 1
    assert torch.equal(first.weight(), second.weight())
    as_a_copy(second, x)


def test_reading_a_weight_in_any_way_gives_its_values() -> None:
    layer = KINDS["linear"].layer()
    weight = layer.weight
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
    assert weight.numpy().shape == (32, 64) and len(weight.tolist()) == 32
    with pytest.raises(AttributeError, match="change the float model"):
        layer.weight = nn.Parameter(torch.zeros(32, 64))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch.func's own
def test_functional_gradients_say_why_there_are_none() -> None:
    layer, (x,) = KINDS["linear"].layer(), KINDS["linear"].inputs()
    for ask in (
        lambda: torch.func.jvp(layer, (x,), (torch.ones_like(x),)),
        lambda: torch.func.grad(lambda v: layer(v).sum())(x),
    ):
        with pytest.raises(NotTrainableError, match="cannot be trained"):
            ask()
    with forward_ad.dual_level(), pytest.raises(NotTrainableError, match="forward-mode"):
        layer(forward_ad.make_dual(x, torch.ones_like(x)))
    as_a_copy(layer, (x,))
