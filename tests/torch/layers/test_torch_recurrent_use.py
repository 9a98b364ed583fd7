"""Quantized LSTM, GRU and RNN: dropout, graphs, state, and how models are converted."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.rnn import (
    pack_padded_sequence,
)

from octavo.errors import ModelError, NotTrainableError
from octavo.torch import quantize_dynamic, report
from octavo.torch.quantizer import Quantizer
from tests.torch.behaviour import (
    assert_bits,
    assert_keeps_its_state,
    assert_runs_in_graphs,
    assert_threads_do_not_matter,
    in_another_process,
)
from tests.torch.recurrent_cases import (
    CLOSE,
    DEEP,
    DEFAULT,
    FLOAT16,
    STACKS,
    every_kind,
    float_stack,
    mapped,
    numbers,
    parts,
    proj_of,
    quantized,
    states,
)


class Flat(nn.Module):
    """Layers between plain tensors whose first axis is the batch: (x, h[, c]) -> y, h'[, c']."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, h: Any = None, c: Any = None) -> Any:
        hx = None if h is None else h.transpose(0, 1)
        y, end = self.layer(x, hx if c is None else (hx, c.transpose(0, 1)))
        return (y, *parts(end))


# --- dropout ---


@every_kind
def test_dropout_acts_between_layers_in_train_mode_alone(kind: str) -> None:
    layer, x = quantized(float_stack(kind, dropout=0.5, **DEEP)), numbers(5, 3, 13)
    hx = states(kind, 4, 3, 21)
    calm = layer(x, hx)
    assert_bits(layer(x, hx), calm)
    layer.train()
    torch.manual_seed(0)
    one = layer(x, hx)
    assert not torch.equal(one[0], calm[0])
    for mine, other in zip(parts(one[1]), parts(calm[1]), strict=True):
        assert_bits(mine[:2], other[:2])  # the first layer's
    torch.manual_seed(0)
    assert_bits(layer(x, hx), one)
    layer.dropout = 1.0  # the second layer gets zeros
    second = float_stack(kind, 42, bidirectional=True)
    second.load_state_dict(
        {k.replace("_l1", "_l0"): v for k, v in layer.dequantized().items() if "_l1" in k}
    )
    y, _ = layer(x, hx)
    wanted, _ = quantized(second)(torch.zeros(5, 3, 42), mapped(lambda t: t[2:].contiguous(), hx))
    assert (y - wanted).abs().max() < CLOSE
    with pytest.raises(ValueError, match=r"hx.*: needs 4 states, not 5"):
        layer(x, states(kind, 5, 3, 21))
    assert_bits(layer.eval()(x, hx), calm)


@every_kind
def test_without_dropout_train_mode_is_eval_mode(kind: str) -> None:
    for options in ({"num_layers": 2}, {"num_layers": 1}):
        layer = quantized(float_stack(kind, **options))
        x = numbers(5, 3, 13)
        calm = layer(x)
        assert_bits(layer.train()(x), calm)


def test_dropout_of_packed_sequences() -> None:
    layer = quantized(float_stack("gru", num_layers=2, dropout=0.5)).train()
    packed = pack_padded_sequence(numbers(5, 3, 13), [5, 3, 2])
    calm = layer.eval()(packed)[0]
    torch.manual_seed(0)
    noisy = layer.train()(packed)[0]
    assert noisy.data.shape == calm.data.shape
    assert not torch.equal(noisy.data, calm.data)


# --- surroundings ---


@every_kind
@pytest.mark.parametrize("choice", [DEFAULT, FLOAT16], ids=["int8", "float16"])
def test_state(kind: str, choice: Any) -> None:
    layer = quantized(float_stack(kind, **DEEP, **proj_of(kind)), [None, choice])
    assert_keeps_its_state(layer, numbers(5, 3, 13))


GRAPHS = [{}, DEEP, {"bias": False, "batch_first": True}]


@pytest.mark.sweep(5)
@every_kind
@pytest.mark.parametrize("options", GRAPHS, ids=["plain", "deep", "batch first"])
def test_graphs(kind: str, options: dict[str, Any]) -> None:
    module = float_stack(kind, **options)
    layer = Flat(quantized(module))
    ways, given = len(module.all_weights), []
    for batch in (4, 7):
        x = numbers(batch, 5, 13)
        hx = states(kind, batch, ways, 21) if options.get("batch_first") else None
        given.append((x, *(() if hx is None else parts(hx))))
    assert_runs_in_graphs(layer, *given)


@every_kind
def test_a_mixed_stack_with_a_projection_in_graphs(kind: str) -> None:
    module = float_stack(kind, batch_first=True, **DEEP, **proj_of(kind))
    layer = Flat(quantized(module, [None, DEFAULT]))
    assert_runs_in_graphs(layer, (numbers(4, 5, 13),), (numbers(7, 5, 13),))


@pytest.mark.slow  # the operators differ from those of test_torch_linear.py, and the graph does not
def test_inductor() -> None:
    layer = Flat(quantized(float_stack("gru")))
    assert_runs_in_graphs(layer, (numbers(4, 5, 13),), (numbers(7, 5, 13),), backend="inductor")


def test_other_inputs_in_graphs() -> None:
    layer = quantized(float_stack("lstm", **DEEP))
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for x in (numbers(5, 13), numbers(5, 3, 13).half(), numbers(5, 0, 13)):
        assert_bits(compiled(x), layer(x))
    exported = torch.export.export(layer, (numbers(5, 13),)).module()
    assert_bits(exported(numbers(5, 13)), layer(numbers(5, 13)))


@every_kind
def test_forward_works_in_grad_mode_and_backward_says_why_not(kind: str) -> None:
    layer, x, hx = quantized(float_stack(kind)), numbers(5, 3, 13), states(kind, 1, 3, 21)
    wanted = layer(x, hx)
    for some in ((x.clone().requires_grad_(), hx), (x, mapped(nn.Parameter, hx))):
        y, end = layer(*some)
        assert_bits((y.detach(), mapped(Tensor.detach, end)), wanted)
        with pytest.raises(NotTrainableError, match=r"octavo::recurrent has no backward"):
            y.sum().backward()
    packed = pack_padded_sequence(x.clone().requires_grad_(), [5, 4, 1])
    y, _ = layer(packed, hx)
    with pytest.raises(NotTrainableError, match=r"octavo::recurrent has no backward"):
        y.data.sum().backward()


@every_kind
@pytest.mark.parametrize("bidirectional", [False, True], ids=["forward", "bidirectional"])
def test_threads_do_not_matter(kind: str, bidirectional: bool) -> None:
    layer = quantized(float_stack(kind, 100, 400, num_layers=2, bidirectional=bidirectional))
    assert_threads_do_not_matter(layer, numbers(7, 9, 100))


class Output(nn.Module):
    """The outputs of a layer alone."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Any:
        return self.layer(x)[0]


def test_another_process() -> None:
    layer, x = Output(quantized(float_stack("lstm", **DEEP))), numbers(5, 3, 13)
    (y,) = in_another_process([layer], [x])
    assert_bits(y, layer(x))


@every_kind
def test_an_empty_layer_says_that_it_is_empty(kind: str) -> None:
    with torch.device("meta"):
        layer = STACKS[kind][1](13, 21, 2)
    with pytest.raises(ModelError, match="holds no weights yet"):
        layer(torch.ones(5, 3, 13))


# --- conversion ---


@every_kind
def test_quantize_dynamic_takes_stacks_layer_by_layer(kind: str) -> None:
    module = float_stack(kind, **DEEP)
    made = quantize_dynamic(nn.ModuleDict({"rnn": module}), {"rnn.l1"})
    assert type(made["rnn"]) is STACKS[kind][1]
    assert made["rnn"].storage == ["float32", "int8"]
    outcomes = {o.layer.name: o for o in report(made).layers}
    assert not outcomes["rnn.l0"].quantized
    one = outcomes["rnn.l1"]
    assert one.quantized
    names = [f"{n}_l1{way}" for n in ("packed_ih", "packed_hh") for way in ("", "_reverse")]
    names += [name.replace("packed", "scale") for name in names]
    held = [getattr(made["rnn"], name) for name in names]
    assert one.bytes_after == sum(t.numel() * t.element_size() for t in held)
    x = numbers(5, 3, 13)
    assert_bits(made["rnn"](x), quantized(module, [None, DEFAULT])(x))


def test_every_layers_noise_and_bytes_are_its_own() -> None:
    module = float_stack("gru", num_layers=12)
    with torch.no_grad():
        for i in range(12):  # the more weights differ in size, the more of them rounding takes
            getattr(module, f"weight_hh_l{i}")[:, 0] *= 1 + i
    made = quantize_dynamic(nn.Sequential(module), {"0"})
    outcomes = [o for o in report(made).layers if o.quantized]
    assert [o.layer.name for o in outcomes] == [f"0.l{i}" for i in range(12)]
    assert len({o.bytes_after for o in outcomes[1:]}) == 1
    assert len({o.sqnr_db for o in outcomes}) == 12


def test_shared_weights_are_quantized_once() -> None:
    first, second = float_stack("gru"), float_stack("gru", num_layers=2)
    second.weight_hh_l1 = first.weight_hh_l0
    made = quantize_dynamic(nn.ModuleDict({"first": first, "second": second}), {nn.GRU})
    assert made["first"].packed_hh_l0 is made["second"].packed_hh_l1
    assert made["first"].packed_ih_l0 is not made["second"].packed_ih_l0
    x = numbers(5, 3, 13)
    assert_bits(made["second"](x), quantized(second)(x))


def test_float16_tells_what_it_costs() -> None:
    made = quantize_dynamic(nn.ModuleDict({"rnn": float_stack("gru", **DEEP)}), dtype="float16")
    assert made["rnn"].storage == ["float16", "float16"]
    for outcome in report(made).layers:
        assert outcome.quantized
        assert 60 < outcome.sqnr_db < 90  # 11 bits of each weight
        assert outcome.bytes_after < 0.8 * outcome.bytes_before


@pytest.mark.parametrize("layers", [1, 2])
def test_a_root_level_stack(layers: int) -> None:
    module = float_stack("lstm", num_layers=layers)
    made = quantize_dynamic(module)
    names = ["(model)"] if layers == 1 else ["l0", "l1"]
    assert [o.layer.name for o in report(made).layers if o.quantized] == names
    assert all(o.sqnr_db and o.sqnr_db > 35 for o in report(made).layers)
    assert_bits(made(numbers(5, 3, 13)), quantized(module)(numbers(5, 3, 13)))


def test_parametrized_weights_are_what_they_compute() -> None:
    class Twice(nn.Module):
        def forward(self, w: Tensor) -> Tensor:
            return 2 * w

    module = float_stack("gru", num_layers=2)
    plain = copy.deepcopy(module)
    with torch.no_grad():
        plain.weight_hh_l1.mul_(2)
    parametrize.register_parametrization(module, "weight_hh_l1", Twice())
    made = quantize_dynamic(module, {nn.GRU})
    assert_bits(made(numbers(5, 3, 13)), quantized(plain)(numbers(5, 3, 13)))


def test_names_tell_of_the_layer() -> None:
    module = float_stack("gru", num_layers=2)
    with torch.no_grad():
        module.weight_hh_l1[3, 4] = np.inf
    with pytest.raises(ValueError, match=r"encoder\.rnn\.l1: weight: .*NaN or infinity"):
        quantized(module, [DEFAULT, DEFAULT], quantizer=Quantizer(), name="encoder.rnn")


def test_options_are_carried_over() -> None:
    for kind, bias in itertools.product(STACKS, (True, False)):
        module = float_stack(kind, bias=bias, batch_first=True, dropout=0.1, **DEEP)
        layer = quantized(module)
        config = layer.config()
        for name in config.keys() - {"storage"}:
            assert config[name] == getattr(module, name)
        assert type(layer)(**config).state_dict().keys() == layer.state_dict().keys()


def test_it_prints_what_it_is() -> None:
    layer = quantized(float_stack("lstm", **DEEP, proj_size=6), [None, DEFAULT])
    assert repr(layer) == (
        "QuantizedLSTM(13, 21, num_layers=2, bidirectional=True, proj_size=6, float32 + int8)"
    )
    layer = quantized(float_stack("relu", bias=False, batch_first=True))
    assert repr(layer) == (
        "QuantizedRNN(13, 21, nonlinearity=relu, bias=False, batch_first=True, int8)"
    )
