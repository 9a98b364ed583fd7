"""What recurrent cells and stacks both stand, and how stacks are converted."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.utils._pytree import tree_leaves

from octavo.errors import ModelError, NotTrainableError
from octavo.torch import quantize_dynamic, report
from octavo.torch.quantizer import Quantizer
from tests.models import Doubled, assert_bits, outcomes, quiet, relative
from tests.torch.behaviour import (
    FLOATS,
    assert_keeps_its_state,
    assert_runs_in_graphs,
    assert_threads_do_not_matter,
)
from tests.torch.recurrent_cases import (
    CELLS,
    CLOSE,
    DEEP,
    DEFAULT,
    FLOAT16,
    STACKS,
    every_kind,
    float_cell,
    float_stack,
    mapped,
    numbers,
    parts,
    proj_of,
    quantized,
    states,
)

pytestmark = pytest.mark.usefixtures("one_registry")

AXIS = {"cell": 0, "stack": 1}
"""Of the batch: in inputs, states and outputs."""
every_form = pytest.mark.parametrize("form", AXIS)


def float_one(form: str, kind: str, **options: Any) -> Any:
    return float_cell(kind, **options) if form == "cell" else float_stack(kind, **DEEP, **options)


def subject(form: str, kind: str, choice: Any = DEFAULT, **options: Any) -> tuple[Any, Tensor, Any]:
    """A layer, an input of 4 items, and their states."""
    module = float_one(form, kind, **options)
    if form == "cell":
        return quantized(module, choice), numbers(4, 13), states(kind, 4, 21)
    choices = choice if isinstance(choice, list) else [choice, choice]
    return quantized(module, choices), numbers(5, 4, 13), states(kind, 4, 4, 21)


@every_form
@every_kind
def test_it_is_near_the_float_layer(form: str, kind: str) -> None:
    layer, x, hx = subject(form, kind)
    exact = tree_leaves(float_one(form, kind)(x, hx))
    for found, wanted in zip(tree_leaves(layer(x, hx)), exact, strict=True):
        assert 0 < relative(found, wanted) < 0.02


@every_form
@every_kind
def test_every_dtype_is_computed_in_float32_and_returned_in_kind(form: str, kind: str) -> None:
    layer, x, hx = subject(form, kind)
    for dtype in FLOATS:
        given = x.to(dtype), mapped(lambda t, to=dtype: t.to(to), hx)
        wanted = tree_leaves(layer(given[0].float(), mapped(Tensor.float, given[1])))
        for y, like in zip(tree_leaves(layer(*given)), wanted, strict=True):
            assert_bits(y, like.to(dtype))


@every_form
@every_kind
def test_states_are_zeros_where_there_are_none(form: str, kind: str) -> None:
    layer, x, hx = subject(form, kind)
    assert_bits(layer(x), layer(input=x, hx=mapped(torch.zeros_like, hx)))


@every_form
@every_kind
def test_an_item_may_come_without_a_batch(form: str, kind: str) -> None:
    (layer, x, hx), at = subject(form, kind), AXIS[form]

    def one(t: Tensor) -> Tensor:
        return t.select(at, 2)

    alone = tree_leaves(layer(one(x), mapped(one, hx)))
    assert all(map(torch.equal, alone, map(one, tree_leaves(layer(x, hx)))))
    assert all(map(torch.equal, tree_leaves(layer(one(x))), map(one, tree_leaves(layer(x)))))


@every_form
@every_kind
def test_strided_inputs(form: str, kind: str) -> None:
    layer, x, hx = subject(form, kind)
    wanted = layer(x, hx)
    wide = torch.zeros(*x.shape[:-1], 40)
    wide[..., 3:16] = x
    apart = mapped(lambda t: t.mT.contiguous().mT, hx)
    for other in (wide[..., 3:16], x.mT.contiguous().mT, torch.stack([x, x], -1)[..., 0]):
        assert_bits(layer(other, hx), wanted)
        assert_bits(layer(other, apart), wanted)
    first = x.narrow(AXIS[form], 0, 1)
    shape = [5, 3, 13][2 - x.dim() + 1 :]
    assert_bits(layer(first.expand(shape)), layer(first.expand(shape).contiguous()))


@every_form
@every_kind
def test_items_do_not_touch_each_other(form: str, kind: str) -> None:
    (layer, x, hx), at = subject(form, kind), AXIS[form]
    clean, others = tree_leaves(layer(x, hx)), torch.tensor([0, 1, 3])
    for bad in (np.nan, np.inf, -np.inf, 100.0):
        for spoilt in (x, parts(hx)[0]):
            saved = spoilt.clone()
            spoilt.select(at, 2)[..., 4] *= bad
            for found, before in zip(tree_leaves(layer(x, hx)), clean, strict=True):
                assert_bits(found.index_select(at, others), before.index_select(at, others))
                item = found.select(at, 2)
                changed = item != before.select(at, 2) if bad == 100.0 else item.isnan()
                assert changed.any() if form == "stack" or bad == 100.0 else changed.all()
            spoilt.copy_(saved)


@every_form
@every_kind
@pytest.mark.parametrize("choice", [FLOAT16, None], ids=["float16", "float32"])
def test_float_weights_compute_in_float32(form: str, kind: str, choice: Any) -> None:
    for options in ({}, proj_of(kind)) if form == "stack" else ({},):
        module = float_one(form, kind, **options)
        layer, x, _ = subject(form, kind, choice, **options)
        held = layer.dequantized()
        for name, weight in module.state_dict().items():
            kept = weight.half().float() if choice and weight.dim() == 2 else weight
            assert_bits(held[name], kept)
        assert layer.integers() == {}
        with torch.no_grad():
            module.load_state_dict(held)
            exact = tree_leaves(quiet(module)(x))
        for found, wanted in zip(tree_leaves(layer(x)), exact, strict=True):
            assert (found - wanted).abs().max() < 5 * CLOSE


@every_form
@every_kind
def test_weights_are_in_pytorchs_order(form: str, kind: str) -> None:
    options = proj_of(kind) if form == "stack" else {}
    module, (layer, *_) = float_one(form, kind, **options), subject(form, kind, **options)
    held = layer.dequantized()
    assert set(held) == set(module.state_dict())
    assert set(layer.integers()) == {n for n, w in module.named_parameters() if w.dim() == 2}
    for name, (q, scale) in layer.integers().items():
        w = getattr(module, name).detach()
        assert_bits(scale, w.abs().amax(1) / 127)
        assert torch.equal(q, (w / scale[:, None]).round().to(torch.int8))
        assert_bits(held[name], q * scale[:, None])
        assert_bits(getattr(layer, name) + 0, held[name])
    for name, bias in module.named_parameters():
        assert bias.dim() > 1 or torch.equal(getattr(layer, name), bias)
    for name in ("weight_ih_l2", "weight_xy_l0", "nothing", "weight_hr"):
        with pytest.raises(AttributeError, match=name):
            getattr(layer, name)
    if form == "stack":
        for mine, theirs in zip(layer.all_weights, module.all_weights, strict=True):
            assert [w.shape for w in mine] == [w.shape for w in theirs]
        layer.flatten_parameters()


REFUSED: list[tuple[str, tuple[int, ...], Any, str]] = [
    ("cell", (4, 12), None, "input"),
    ("cell", (12,), None, "input"),
    ("cell", (2, 4, 13), None, "input"),
    ("cell", (4, 13), (3, 21), "hx"),
    ("cell", (4, 13), (4, 20), "hx"),
    ("cell", (4, 13), (21,), "hx"),
    ("cell", (13,), (1, 21), "hx"),
    ("stack", (5, 3, 12), None, "input"),
    ("stack", (5, 12), None, "input"),
    ("stack", (13,), None, "input"),
    ("stack", (1, 5, 3, 13), None, "input"),
    ("stack", (5, 3, 13), (4, 2, 21), "hx"),
    ("stack", (5, 3, 13), (2, 3, 21), "hx"),
    ("stack", (5, 3, 13), (4, 21), "hx"),
    ("stack", (5, 13), (4, 1, 21), "hx"),
]


@every_kind
@pytest.mark.parametrize(("form", "shape", "state", "name"), REFUSED)
def test_shapes_that_are_refused(
    kind: str, form: str, shape: tuple[int, ...], state: Any, name: str
) -> None:
    layer, hx = subject(form, kind)[0], None if state is None else states(kind, *state)
    with pytest.raises(ValueError, match=f"{name}.*: needs"):
        layer(torch.ones(shape), hx)
    if kind == "gru" and shape[-1] == 13 and len(shape) > 1:
        with pytest.raises(Exception, match=f"{name}.*: needs"):
            torch.export.export(layer, (torch.ones(shape), hx))


@every_form
@every_kind
def test_dtypes_that_are_refused(form: str, kind: str) -> None:
    layer, x, hx = subject(form, kind)
    for dtype in (torch.int64, torch.complex64):
        with pytest.raises(TypeError, match="input: needs float32"):
            layer(x.to(dtype))
    with pytest.raises(TypeError, match=r"hx.*: is float64; needs float32"):
        layer(x, mapped(Tensor.double, hx))
    with pytest.raises(TypeError, match=r"hx.*: is float32; needs float16"):
        layer(x.half(), hx)
    if kind == "lstm":
        with pytest.raises(TypeError, match="hx: needs a pair"):
            layer(x, hx[0])
        assert_bits(layer(x, list(hx)), layer(x, hx))


class Flat(nn.Module):
    """Layers between plain tensors whose first axis is the batch: (x, h[, c]) -> y, h'[, c']."""

    def __init__(self, layer: nn.Module, is_stack: bool) -> None:
        super().__init__()
        self.layer, self.is_stack = layer, is_stack

    def forward(self, x: Tensor, h: Any = None, c: Any = None) -> Any:
        hx = None if h is None else h if c is None else (h, c)
        if self.is_stack and hx is not None:
            hx = mapped(lambda t: t.transpose(0, 1), hx)
        found = self.layer(x, hx)
        return (found[0], *parts(found[1])) if self.is_stack else found


GRAPHS: list[tuple[str, str, dict[str, Any], list[Any]]] = [
    ("cell", "lstm", {}, []),
    ("stack", "lstm", {"num_layers": 2, "proj_size": 6}, [None, DEFAULT]),
    ("cell", "tanh", {"bias": False}, []),
    ("stack", "gru", {"bidirectional": True}, [DEFAULT]),
    ("cell", "gru", {}, []),
    ("stack", "relu", {"bias": False}, [DEFAULT]),
    ("stack", "lstm", DEEP, [DEFAULT, DEFAULT]),
]


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("form", "kind", "options", "choices"), GRAPHS)
def test_graphs(form: str, kind: str, options: dict[str, Any], choices: list[Any]) -> None:
    if form == "cell":
        layer, shape = quantized(float_cell(kind, **options)), (13,)
    else:
        layer = quantized(float_stack(kind, batch_first=True, **options), choices)
        shape = (5, 13)
    flat, given = Flat(layer, form == "stack"), []
    for batch in (4, 7):
        hx = states(kind, batch, *([len(layer.all_weights)] if form == "stack" else []), 21)
        given.append((numbers(batch, *shape), *parts(hx)))
    if "proj_size" in options:
        given = [some[:1] for some in given]
    assert_runs_in_graphs(flat, *given)


@pytest.mark.slow  # the operators differ from those of test_torch_linear.py, and the graph does not
def test_inductor() -> None:
    layer = Flat(quantized(float_stack("gru", batch_first=True)), True)
    assert_runs_in_graphs(layer, (numbers(4, 5, 13),), (numbers(7, 5, 13),), backend="inductor")


@pytest.mark.parametrize(
    ("form", "shapes"), [("cell", [(13,)]), ("stack", [(5, 13), (5, 0, 13)])], ids=AXIS
)
def test_other_inputs_in_graphs(form: str, shapes: list[tuple[int, ...]]) -> None:
    layer = quantized(float_cell("gru") if form == "cell" else float_stack("gru"))
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for x in (numbers(*shape) for shape in shapes):
        assert_bits(compiled(x), layer(x))
    x = numbers(*shapes[0])
    assert_bits(torch.export.export(layer, (x,)).module()(x), layer(x))


@every_form
@every_kind
@pytest.mark.parametrize("choice", [DEFAULT, FLOAT16], ids=["int8", "float16"])
def test_state(form: str, kind: str, choice: Any) -> None:
    options = proj_of(kind) if form == "stack" else {}
    layer, x, _ = subject(form, kind, [None, choice] if options else choice, **options)
    assert_keeps_its_state(layer, x)


@every_form
@every_kind
def test_forward_works_in_grad_mode_and_backward_says_why_not(form: str, kind: str) -> None:
    layer, x, hx = subject(form, kind)
    wanted = tree_leaves(layer(x, hx))
    for some in ((x.clone().requires_grad_(), hx), (x, mapped(nn.Parameter, hx))):
        found = tree_leaves(layer(*some))
        for y, like in zip(found, wanted, strict=True):
            assert_bits(y.detach(), like)
        with pytest.raises(NotTrainableError, match=r"octavo::recurrent has no backward"):
            found[0].sum().backward()


def test_other_ways_to_call_in_grad_mode() -> None:
    stack, x = quantized(float_stack("gru")), numbers(5, 3, 13).requires_grad_()
    packed = pack_padded_sequence(x, [5, 4, 1])
    torch._dynamo.reset()
    cell = quantized(float_cell("gru"))
    compiled = quiet(torch.compile(cell, fullgraph=True, backend="aot_eager"))
    assert_bits(compiled(x[0]).detach(), cell(x[0]).detach())
    for y in (stack(packed)[0].data, compiled(x[0])):
        with pytest.raises(NotTrainableError, match=r"octavo::recurrent has no backward"):
            y.sum().backward()


@pytest.mark.parametrize(
    ("form", "kind"), [("cell", "lstm"), ("stack", "gru"), ("cell", "tanh"), ("stack", "relu")]
)
def test_threads_do_not_matter(form: str, kind: str) -> None:
    if form == "cell":
        layer, given = quantized(float_cell(kind, 300, 400)), (numbers(33, 300),)
    else:
        layer, given = quantized(float_stack(kind, 100, 400, **DEEP)), (numbers(5, 9, 100),)
    assert_threads_do_not_matter(layer, *given)


@every_form
@every_kind
def test_an_empty_layer_says_that_it_is_empty(form: str, kind: str) -> None:
    with torch.device("meta"):
        layer = (CELLS if form == "cell" else STACKS)[kind][1](13, 21)
    with pytest.raises(ModelError, match="holds no weights yet"):
        layer(numbers(5, 4, 13)[0 if form == "cell" else ...])


def test_constructors_refuse_what_cannot_be() -> None:
    for of in (CELLS, STACKS):
        with pytest.raises(ValueError, match="nonlinearity: 'gelu'"):
            of["relu"][1](13, 21, nonlinearity="gelu")
    with pytest.raises(ValueError, match="storage: has 1 entries, num_layers=2"):
        STACKS["gru"][1](13, 21, 2, storage=["int8"])


@every_kind
def test_quantize_dynamic_takes_stacks_layer_by_layer(kind: str) -> None:
    module = float_stack(kind, **DEEP)
    made = quantize_dynamic(nn.ModuleDict({"rnn": module}), {"rnn.l1"})
    assert type(made["rnn"]) is STACKS[kind][1]
    assert made["rnn"].storage == ["float32", "int8"]
    found = outcomes(made)
    assert [found[f"rnn.l{i}"].quantized for i in (0, 1)] == [False, True]
    names = [f"{n}_l1{way}" for n in ("packed_ih", "packed_hh") for way in ("", "_reverse")]
    names += [name.replace("packed", "scale") for name in names]
    assert found["rnn.l1"].bytes_after == sum(getattr(made["rnn"], n).nbytes for n in names)
    x = numbers(5, 3, 13)
    assert_bits(made["rnn"](x), quantized(module, [None, DEFAULT])(x))


def test_every_layers_noise_and_bytes_are_its_own() -> None:
    module = float_stack("gru", num_layers=12)
    with torch.no_grad():
        for i in range(12):  # the more weights differ in size, the more of them rounding takes
            getattr(module, f"weight_hh_l{i}")[:, 0] *= 1 + i
    made = quantize_dynamic(nn.Sequential(module), {"0"})
    found = [o for o in report(made).layers if o.quantized]
    assert [o.layer.name for o in found] == [f"0.l{i}" for i in range(12)]
    assert len({o.bytes_after for o in found[1:]}) == 1
    assert len({o.sqnr_db for o in found}) == 12


def test_shared_weights_are_quantized_once() -> None:
    first, second = float_stack("gru"), float_stack("gru", num_layers=2)
    second.weight_hh_l1 = first.weight_hh_l0
    made = quantize_dynamic(nn.ModuleDict({"first": first, "second": second}), {nn.GRU})
    assert made["first"].packed_hh_l0 is made["second"].packed_hh_l1
    assert made["first"].packed_ih_l0 is not made["second"].packed_ih_l0
    x = numbers(5, 3, 13)
    assert_bits(made["second"](x), quantized(second)(x))


@pytest.mark.parametrize("layers", [1, 2])
def test_a_root_level_stack(layers: int) -> None:
    module = float_stack("lstm", num_layers=layers)
    made = quantize_dynamic(module)
    names = ["(model)"] if layers == 1 else ["l0", "l1"]
    assert [o.layer.name for o in report(made).layers if o.quantized] == names
    assert all(o.sqnr_db and o.sqnr_db > 35 for o in report(made).layers)
    assert_bits(made(numbers(5, 3, 13)), quantized(module)(numbers(5, 3, 13)))


def test_parametrized_weights_are_what_they_compute() -> None:
    module = float_stack("gru", num_layers=2)
    plain = copy.deepcopy(module)
    with torch.no_grad():
        plain.weight_hh_l1.mul_(2)
    parametrize.register_parametrization(module, "weight_hh_l1", Doubled())
    made = quantize_dynamic(module, {nn.GRU})
    assert_bits(made(numbers(5, 3, 13)), quantized(plain)(numbers(5, 3, 13)))


def test_names_tell_of_the_layer() -> None:
    module = float_stack("gru", num_layers=2)
    with torch.no_grad():
        module.weight_hh_l1[3, 4] = np.inf
    with pytest.raises(ValueError, match=r"encoder\.rnn\.l1: weight: .*NaN"):
        quantized(module, [DEFAULT, DEFAULT], quantizer=Quantizer(), name="encoder.rnn")


def test_options_are_carried_over() -> None:
    for kind, bias in itertools.product(STACKS, (True, False)):
        module = float_stack(kind, bias=bias, batch_first=True, dropout=0.1, **DEEP)
        layer = quantized(module)
        config = layer.config()
        for name in config.keys() - {"storage"}:
            assert config[name] == getattr(module, name)
        assert type(layer)(**config).state_dict().keys() == layer.state_dict().keys()


def test_layers_print_what_they_are() -> None:
    stack = quantized(float_stack("lstm", **DEEP, proj_size=6), [None, DEFAULT])
    assert repr(stack) == (
        "QuantizedLSTM(13, 21, num_layers=2, bidirectional=True, proj_size=6, float32 + int8)"
    )
    stack = quantized(float_stack("relu", bias=False, batch_first=True))
    assert repr(stack) == (
        "QuantizedRNN(13, 21, nonlinearity=relu, bias=False, batch_first=True, int8)"
    )
    assert repr(quantized(float_cell("lstm"))) == "QuantizedLSTMCell(13, 21, int8)"
    cell = quantized(float_cell("relu", bias=False), FLOAT16)
    assert repr(cell) == "QuantizedRNNCell(13, 21, bias=False, nonlinearity=relu, float16)"


class Packs(nn.Module):
    def __init__(self, layer: nn.Module, is_sorted: bool) -> None:
        super().__init__()
        self.layer, self.is_sorted, self.out = layer, is_sorted, nn.Linear(16, 3)

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        packed = pack_padded_sequence(x, lengths, enforce_sorted=self.is_sorted)
        y, state = self.layer(packed)
        padded, _ = pad_packed_sequence(y)
        return self.out(padded), state


@pytest.mark.sweep(4)  # each kind and each lengths once
@pytest.mark.parametrize("lengths", [(6, 4, 1), (6, 6, 6), (2, 6, 3)], ids=str)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.RNN, nn.GRU])
def test_packed_sequences_are_compiled(kind: Any, lengths: tuple[int, ...]) -> None:
    torch._dynamo.reset()
    is_sorted = list(lengths) == sorted(lengths, reverse=True)
    model = quantize_dynamic(Packs(kind(8, 8, bidirectional=True), is_sorted))
    x, sizes = torch.randn(6, 3, 8), torch.tensor(lengths)
    compiled = torch.compile(model, backend="aot_eager")
    with torch.no_grad():
        found, expected = tree_leaves(compiled(x, sizes)), tree_leaves(model(x, sizes))
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        packed = pack_padded_sequence(x, sizes, enforce_sorted=is_sorted)
        y, _ = torch.compile(model.layer, backend="aot_eager")(packed)
        assert isinstance(y, PackedSequence)
        assert torch.equal(y.data, model.layer(packed)[0].data)
