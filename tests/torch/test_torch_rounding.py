"""Samples of inputs, and what bits cost each layer: rounding that looks at more than weights."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import octavo.torch
from octavo.core.metrics import relative_error
from octavo.errors import InputDataError, TooFewBitsError
from octavo.recipe import Recipe
from octavo.recipe.bit_budget import WAYS
from octavo.torch.replace.inventory import inventory
from octavo.torch.search_inputs.input_statistics import InputStatistics
from octavo.torch.search_inputs.sensitivities import sensitivities
from tests.models import Tied, net


class Net(nn.Module):
    """Tokens, two layers over one input, and a head; a few inputs are much larger than others."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(320, 128)
        self.table.weight.data *= torch.logspace(-1, 1, 128)[torch.randperm(128)]
        self.left, self.right = nn.Linear(128, 256), nn.Linear(128, 256)
        self.head = nn.Linear(256, 320, bias=False)

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x = self.table(ids)
        return self.head(torch.relu(self.left(x)) * torch.sigmoid(self.right(x)))


def _samples(count: int = 6, seed: int = 1) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        yield torch.randint(320, (4, 32), generator=generator)


def _error(model: nn.Module, **how: Any) -> float:
    recipe = Recipe.from_dict({"base": "int4", "rules": [{"name": "table", "scheme": "float"}]})
    made = octavo.torch.quantize_dynamic(model, recipe=recipe, **how)
    ids = next(_samples(1, seed=9))
    with torch.no_grad():
        return relative_error(model(ids).numpy(), made(ids).numpy())


def test_samples_lower_the_error_and_feedback_lowers_it_further() -> None:
    model = Net().eval()
    without = _error(model)
    by_squares = _error(model, inputs=_samples())
    fed_back = _error(model, inputs=_samples(), error_feedback=True)
    without_data = _error(model, error_feedback=True)
    assert fed_back < 0.8 * by_squares
    assert without_data < by_squares
    assert by_squares < 0.9 * without


def test_the_report_says_what_samples_did() -> None:
    made = octavo.torch.quantize_dynamic(Net(), recipe="int4", inputs=_samples(3))
    notes = octavo.torch.report(made).notes
    assert any("3 layers were rounded by the mean squares" in n for n in notes)
    made = octavo.torch.quantize_dynamic(Net(), recipe="int8", inputs=_samples(3))
    assert any("do not change how weights" in n for n in octavo.torch.report(made).notes)


def test_the_model_is_as_it_was() -> None:
    model = Net().eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    octavo.torch.quantize_dynamic(
        model, recipe="int4-mixed", inputs=_samples(), error_feedback=True
    )
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("products", [False, True], ids=["squares", "products"])
def test_statistics_are_means_over_the_tokens_that_count(products: bool) -> None:
    model, ids = Net().eval(), next(_samples(1))
    mask = torch.ones_like(ids)
    mask[1:, 20:] = 0
    found = InputStatistics(
        model, {"left": "left"}, [{"ids": ids, "attention_mask": mask}], products
    ).of("left")
    with torch.no_grad():
        x = model.table(ids)[mask.bool()].double().numpy()
    expected = x.T @ x / len(x) if products else np.square(x).mean(0)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def test_products_come_in_batches_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("octavo.torch.search_inputs.input_statistics._ROOM", 100_000)
    names = {"left": "left", "right": "right", "head": "head"}
    some = InputStatistics(Net().eval(), names, _samples(), products=True)
    monkeypatch.undo()
    all_at_once = InputStatistics(Net().eval(), names, _samples(), products=True)
    for name in names:
        np.testing.assert_array_equal(some.of(name), all_at_once.of(name))


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ([], "inputs: there are none"),
        ([torch.zeros(2, 3)], "the float model fails on item 0"),
        ([{"idz": torch.zeros(1)}], "no input 'idz'"),
    ],
    ids=["none", "wrong-dtype", "unknown-name"],
)
def test_samples_that_cannot_be_used_are_refused(inputs: Any, said: str) -> None:
    with pytest.raises(InputDataError, match=said):
        octavo.torch.quantize_dynamic(Net(), recipe="int4", inputs=inputs)


def test_feedback_needs_inputs_that_can_be_made_up() -> None:
    class Secret(Net):
        def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
            assert attention_mask is not None
            return super().forward(ids)

    with pytest.raises(InputDataError, match="no inputs could be made up"):
        octavo.torch.quantize_dynamic(Secret(), recipe="int4", error_feedback=True)


def test_losses_are_what_layers_cost_outputs() -> None:
    """The order of what each layer alone does to outputs, which is much more in some."""
    model, ids = Net().eval(), next(_samples(1, seed=9))
    found, unreached = sensitivities(model, inventory(model), [ids])
    assert not unreached
    assert set(found) == {"table", "left", "right", "head"}
    with torch.no_grad():
        exact = model(ids).numpy()
    for name, losses in found.items():
        assert len(losses) == len(WAYS)
        rules = [{"name": other, "scheme": "float"} for other in found if other != name]
        made = octavo.torch.quantize_dynamic(
            model, recipe=Recipe.from_dict({"base": "int4", "rules": rules})
        )
        with torch.no_grad():
            off = made(ids).numpy() - exact
        alone = np.square(off).sum() / np.square(exact).sum()
        assert 0.3 < losses[3] / alone < 3
        assert losses[0] > losses[3] > 20 * losses[5]


def branches() -> nn.Module:
    """One branch of two is never taken, and a head is tied to a table."""

    def forward(m: Any, ids: Tensor) -> Any:
        x = m.table(ids)
        return m.head(m.idle(x) if ids.shape[0] == 0 else m.taken(x))

    tied = Tied(320, 128)
    idle = nn.Linear(128, 128)
    return net(forward, table=tied.table, taken=tied.inner, idle=idle, head=tied.head).eval()


@pytest.mark.parametrize("feedback", [False, True])
def test_the_report_names_layers_that_samples_did_not_help(feedback: bool) -> None:
    made = octavo.torch.quantize_dynamic(
        branches(), recipe="int4", inputs=_samples(3), error_feedback=feedback
    )
    notes = "\n".join(octavo.torch.report(made).notes)
    assert "weights of 1 layer were rounded" in notes
    assert re.search("got no input from 3 samples.*: idle", notes)
    assert re.search("rounded for another layer, without samples: head", notes)


def test_the_report_says_where_bits_were_given_by_size() -> None:
    model = branches()
    made = octavo.torch.quantize_dynamic(model, recipe="int4-mixed", inputs=_samples(3))
    notes = "\n".join(octavo.torch.report(made).notes)
    assert "bits were given to 1 layer by size: the inputs do not come to idle" in notes
    found, unreached = sensitivities(model, inventory(model), _samples(3))
    assert unreached == ["idle"]
    assert set(found) == {"table", "taken", "head"}


def test_a_mix_is_measured_and_keeps_to_its_bits() -> None:
    for bits in (5.2, 6.0, 7.5):
        recipe = Recipe.from_dict({"base": "int4-mixed", "mix": {"bits": bits}})
        report = octavo.torch.report(octavo.torch.quantize_dynamic(Net(), recipe=recipe))
        weights = sum(math.prod(s) for o in report.quantized for _, s in o.layer.weights)
        assert 8 * sum(o.bytes_after for o in report.quantized) <= bits * weights
        assert any("by what outputs for made-up inputs lose" in note for note in report.notes)


def several() -> nn.Module:
    """Layers that a mix is for, and others: a tied head, a convolution, a stack, a small table."""

    def forward(m: Any, ids: Tensor) -> Any:
        x = m.table(ids) + m.small(ids % 4)
        x = m.rnn(m.conv(x.mT).mT)[0]
        x = m.out(torch.relu(m.fc(x)))
        return m.head(x + m.bilinear(x[..., :8], x[..., 8:16]))

    tied = Tied(320, 128)
    return net(
        forward,
        table=tied.table,
        small=nn.Embedding(4, 128),
        conv=nn.Conv1d(128, 128, 3, padding=1),
        rnn=nn.GRU(128, 64, bidirectional=True),
        fc=nn.Linear(128, 256),
        out=nn.Linear(256, 128),
        bilinear=nn.Bilinear(8, 8, 128),
        head=tied.head,
    ).eval()


@pytest.mark.parametrize(
    "rules",
    [
        [],
        [{"name": "fc", "scheme": "float"}, {"name": "rnn", "scheme": "float"}],
        [{"name": "out", "scheme": "int8"}, {"name": "conv", "scheme": "int8"}],
        [{"name": "table", "scheme": "int8"}],
    ],
    ids=["none", "float", "int8", "tied"],
)
def test_the_report_adds_up_to_what_a_mix_allows(rules: list[dict[str, Any]]) -> None:
    model = several()

    def made(**mix: float) -> Any:
        said = {**mix, "sensitivities": {"fc": 1.0, "head": 1.0}}
        recipe = Recipe.from_dict({"base": "int4-mixed", "mix": said, "rules": rules})
        return octavo.torch.report(octavo.torch.quantize_dynamic(model, recipe=recipe))

    with pytest.raises(TooFewBitsError) as refused:
        made(bits=1.0)
    needed = float(str(refused.value).split(" a weight")[0].split()[-1])
    for bits in (needed, needed + 0.5):
        assert 0.85 * bits < made(bits=bits).bits_per_weight <= bits
    with pytest.raises(TooFewBitsError) as refused:
        made(size=1000)
    least = int(str(refused.value).split("take ")[1].split(" bytes")[0])
    for size in (least, least + 20_000):
        assert 0.8 * size < sum(o.bytes_after for o in made(size=size).layers) <= size


def test_what_cannot_be_measured_is_mixed_by_size() -> None:
    rounds = net(lambda m, x: m.fc(x).round(), fc=nn.Linear(256, 256))  # whose gradient is 0
    report = octavo.torch.report(octavo.torch.quantize_dynamic(rounds, recipe="int4-mixed"))
    assert any("by their sizes" in note for note in report.notes)
