"""What a traced forward reads beside its weights, and what it leaves behind."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from octavo.torch import quantize_dynamic, report
from octavo.torch.blocks import build
from octavo.torch.blocks.block import plans_of
from octavo.torch.dynamic_type import type_behind
from tests.torch.blocks.one_call import OwnForwards, near, plans


class Block(nn.Module):
    """x times a factor of the kind's own, beside two linear layers."""

    by_class = 1.0

    def __init__(self, index: int) -> None:
        super().__init__()
        self.layer_idx = index
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)
        self._hidden = 1.0
        self.held = SimpleNamespace(factor=1.0)
        self.listed = [1.0]
        self.counted = torch.tensor(1.0)

    @property
    def by_property(self) -> float:
        return self._hidden

    def factor(self) -> Any:
        return 1.0

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor() + self.down(torch.relu(self.up(x)))


def kind(factor: Callable[[Any], Any]) -> type[Block]:
    """Blocks with that factor."""
    return type("Other", (Block,), {"factor": factor})


def whole(of: type[Block]) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential()
    model.layers = nn.ModuleList(of(i) for i in range(3))
    return quantize_dynamic(model)


def layers(of: type[Block]) -> Any:
    return whole(of).layers


def agree(blocks: Any) -> None:
    """What runs as one call computes what the forwards do."""
    x = torch.randn(2, 5, 32)

    def run() -> Tensor:
        y = x
        for block in blocks:
            y = block(y)
        return y

    found = run()
    with OwnForwards():
        near(found, run(), 1e-4)


CHANGES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], object]]] = {
    "class": (lambda b: b.by_class, lambda b: setattr(b, "by_class", 3.0)),
    "type": (lambda b: b.by_class, lambda b: setattr(type_behind(type(b)), "by_class", 3.0)),
    "property": (lambda b: b.by_property, lambda b: setattr(b, "_hidden", 3.0)),
    "object": (lambda b: b.held.factor, lambda b: setattr(b.held, "factor", 3.0)),
    "list": (lambda b: b.listed[0], lambda b: b.listed.__setitem__(0, 3.0)),
    "tensor": (lambda b: b.counted, lambda b: b.counted.fill_(3.0)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_forward_reads_may_change_after_a_call(name: str) -> None:
    factor, change = CHANGES[name]
    blocks = layers(kind(factor))
    agree(blocks)
    change(blocks[1])
    agree(blocks)


shared = 1.0
"""A global, and in some blocks an attribute too."""


this = sys.modules[__name__]


def called() -> float:
    return shared


def with_shared(read: Callable[[Any], Any]) -> type[Block]:
    """Blocks that have an attribute, a method and a part named as globals of this module."""

    def __init__(self: Any, index: int) -> None:
        Block.__init__(self, index)
        self.shared = 1.0
        self.layers = nn.Identity()

    members = {"__init__": __init__, "called": lambda b: 1.0, "factor": read}
    return type("Other", (Block,), members)


NAMED_ALIKE: dict[str, Callable[[Any], Any]] = {
    "attribute": lambda b: b.shared,
    "method": lambda b: b.called(),
    "part": lambda b: b.layers(torch.ones(1)),
    "of an object": lambda b: SimpleNamespace(shared=1.0).shared,
    "text": lambda b: getattr(b, "shared"),  # noqa: B009
    "inside": lambda b: next(one.shared for one in [b]),
}
LOADED: dict[str, Callable[[Any], Any]] = {
    "global": lambda b: shared,
    "beside an attribute": lambda b: shared * b.shared,
    "in a function": lambda b: called(),
    "inside": lambda b: next(shared for _ in [b]),
    "text": lambda b: globals()["shared"],
    "of a module": lambda b: this.shared,
    "in a function of a module": lambda b: this.called(),
}


@pytest.mark.parametrize("name", NAMED_ALIKE)
def test_a_global_named_as_an_attribute_may_change(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = layers(with_shared(NAMED_ALIKE[name]))
    agree(blocks)
    for other in ("shared", "called", "layers"):
        monkeypatch.setitem(globals(), other, lambda: 3.0)
    before = plans(blocks[0])
    agree(blocks)
    assert plans(blocks[0]) == before != []
    assert not plans_of(blocks[0], type_behind(type(blocks[0]))).disturbed


@pytest.mark.parametrize("name", LOADED)
def test_a_global_that_is_read_and_changes_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    of = with_shared(LOADED[name])
    blocks, x = layers(of), torch.randn(2, 5, 32)
    first = blocks[0](x)
    monkeypatch.setitem(globals(), "shared", 3.0)
    reason = f"{__name__}.shared is not what it was when Octavo first saw the block's code"
    with caplog.at_level("INFO", "octavo.torch.blocks"):
        near(blocks[0](x) - first, 2 * x, 1e-4)
        blocks[0](x)
    said = [r.getMessage() for r in caplog.records if r.name == "octavo.torch.blocks"]
    assert said == [f"a Other runs its own forward: {reason}"]
    (note,) = [n for n in report(whole(of)).notes if "own forward" in n]
    assert note == f"these blocks run their own forward ({reason}): layers.0, layers.1, layers.2"


class Settings:
    factor = 1.0
    unset: float | None = None
    table: list[float] = [1.0]  # noqa: RUF012

    def __init__(self) -> None:
        self.own = 1.0
        self.kept = torch.ones(3)  # not to be compared, nor read

    @property
    def computed(self) -> float:
        return self.own


settings, other_settings = Settings(), Settings()
table, listed, filled = {"factor": 1.0}, [1.0], torch.tensor(1.0)
nested = ((listed,),)
part = nn.Linear(1, 1, bias=False)
part.weight.data.fill_(1.0)


def defaulting(factor: float = 1.0, *, named: float = 1.0) -> float:
    return factor * named


def closing(start: Any) -> tuple[Callable[[Any], Any], Callable[[Any], None]]:
    held = start

    def put(value: Any) -> None:
        nonlocal held
        held = value

    return (lambda b: held[0] if isinstance(held, list) else held), put


number, set_number = closing(1.0)
within, set_within = closing([1.0])
BEYOND: dict[str, tuple[Callable[[Any], Any], Callable[[], object], Callable[[], object]]] = {
    "a dict": (
        lambda b: table["factor"],
        lambda: table.update(factor=3.0),
        lambda: table.update(factor=1.0),
    ),
    "a key of a dict": (
        lambda b: table.get("new", 1.0),
        lambda: table.update(new=3.0),
        lambda: table.pop("new"),
    ),
    "a list": (
        lambda b: listed[0],
        lambda: listed.__setitem__(0, 3.0),
        lambda: listed.__setitem__(0, 1.0),
    ),
    "a list in tuples": (
        lambda b: nested[0][0][0],
        lambda: listed.__setitem__(0, 3.0),
        lambda: listed.__setitem__(0, 1.0),
    ),
    "a tensor": (lambda b: filled, lambda: filled.fill_(3.0), lambda: filled.fill_(1.0)),
    "a module with weights": (
        lambda b: part(torch.ones(1)),
        lambda: part.weight.data.fill_(3.0),
        lambda: part.weight.data.fill_(1.0),
    ),
    "an object": (
        lambda b: settings.own,
        lambda: setattr(settings, "own", 3.0),
        lambda: setattr(settings, "own", 1.0),
    ),
    "an object's class": (
        lambda b: settings.factor,
        lambda: setattr(Settings, "factor", 3.0),
        lambda: setattr(Settings, "factor", 1.0),
    ),
    "an attribute in place of the class's": (
        lambda b: settings.factor,
        lambda: setattr(settings, "factor", 3.0),
        lambda: delattr(settings, "factor"),
    ),
    "a class": (
        lambda b: Settings.factor,
        lambda: setattr(Settings, "factor", 3.0),
        lambda: setattr(Settings, "factor", 1.0),
    ),
    "a class's None": (
        lambda b: Settings.unset or 1.0,
        lambda: setattr(Settings, "unset", 3.0),
        lambda: setattr(Settings, "unset", None),
    ),
    "a property of an object": (
        lambda b: settings.computed,
        lambda: setattr(settings, "own", 3.0),
        lambda: setattr(settings, "own", 1.0),
    ),
    "one of two objects": (
        lambda b: settings.factor * other_settings.factor,
        lambda: setattr(other_settings, "factor", 3.0),
        lambda: delattr(other_settings, "factor"),
    ),
    "a list of a class": (
        lambda b: Settings.table[0],
        lambda: Settings.table.__setitem__(0, 3.0),
        lambda: Settings.table.__setitem__(0, 1.0),
    ),
    "a default": (
        lambda b: defaulting(),
        lambda: setattr(defaulting, "__defaults__", (3.0,)),
        lambda: setattr(defaulting, "__defaults__", (1.0,)),
    ),
    "a default by name": (
        lambda b: defaulting(),
        lambda: setattr(defaulting, "__kwdefaults__", {"named": 3.0}),
        lambda: setattr(defaulting, "__kwdefaults__", {"named": 1.0}),
    ),
    "an item of the defaults by name": (
        lambda b: defaulting(),
        lambda: defaulting.__kwdefaults__.update(named=3.0),
        lambda: defaulting.__kwdefaults__.update(named=1.0),
    ),
    "a closure's number": (number, lambda: set_number(3.0), lambda: set_number(1.0)),
    "a closure's list": (within, lambda: set_within([3.0]), lambda: set_within([1.0])),
}


@pytest.mark.parametrize("name", BEYOND)
def test_what_a_forward_reads_beyond_its_module_may_change(name: str) -> None:
    factor, change, restore = BEYOND[name]
    blocks, x = layers(kind(factor)), torch.randn(2, 5, 32)
    try:
        first = blocks[0](x)
        change()
        near(blocks[0](x) - first, 2 * x, 1e-4)
        agree(blocks)
    finally:
        restore()


def test_a_global_list_is_named_as_the_reason() -> None:
    (note,) = [n for n in report(whole(kind(lambda b: listed[0]))).notes if "own forward" in n]
    assert f"({__name__}.listed is a list, which may change unseen)" in note


def test_an_attribute_named_as_a_global_makes_no_new_trace() -> None:
    block, x = layers(with_shared(lambda b: shared))[0], torch.randn(2, 5, 32)
    block(x)
    before = plans(block)
    block.shared = 3.0
    block(x)
    assert plans(block) == before != []


DISTURBING: dict[str, tuple[Callable[[Any], object], str]] = {
    "training": (lambda b: b.down.train(), "down in it is in training mode"),
    "hook": (
        lambda b: b.down.register_forward_hook(lambda *args: None),
        "down in it has a forward hook",
    ),
    "method": (
        lambda b: setattr(type_behind(type(b)), "factor", lambda b: 1.0),
        "Other.factor is not what it was when Octavo first saw the block's code",
    ),
    "method of its own": (
        lambda b: setattr(b, "factor", lambda: 1.0),
        "a method or an attention function that it calls was replaced",
    ),
}


@pytest.mark.parametrize("name", DISTURBING)
def test_what_leaves_a_call_to_the_own_forward_is_named(name: str) -> None:
    disturb, reason = DISTURBING[name]
    block, x = layers(kind(lambda b: 1.0))[0], torch.randn(2, 5, 32)
    for _ in range(2):
        block(x)
    disturb(block)
    block(x)
    assert plans_of(block, type_behind(type(block))).disturbed == reason


def test_layers_that_compute_with_their_place_share_no_trace() -> None:
    agree(layers(kind(lambda b: 1 + 0.01 * b.layer_idx)))


def test_what_a_forward_writes_it_writes_in_every_call() -> None:
    log: list[int] = []
    blocks = layers(kind(lambda b: log.append(b.layer_idx) or 1.0))
    log.clear()
    for _ in range(2):
        for block in blocks:
            block(torch.randn(2, 5, 32))
    assert log == [0, 1, 2] * 2


def test_an_attribute_that_a_forward_writes_is_a_tensor_of_every_call() -> None:
    blocks = layers(kind(lambda b: setattr(b, "counted", b.counted + 1) or 1.0))
    for calls in (1, 2):
        for block in blocks:
            block(torch.randn(2, 5, 32))
            assert type(block.counted) is Tensor
            assert block.counted == calls + 1


class Filled(Block):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        q = self.up(x)
        scores = (q @ q.transpose(1, 2)).unsqueeze(1)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        weights = torch.softmax(scores, -1)
        return self.down((weights @ q.unsqueeze(1)).squeeze(1))


def test_a_query_that_no_key_counts_for_has_the_mean_where_the_fill_is_finite() -> None:
    block = layers(Filled)[0]
    x, mask = torch.randn(2, 5, 32), torch.ones(2, 1, 1, 5)
    block(x, mask)
    mask[1] = 0
    found = block(x, mask)
    with OwnForwards():
        near(found, block(x, mask), 0.01)


class Takes(Block):
    def forward(self, x: Tensor, flag: Any = None) -> Tensor:  # type: ignore[override]
        return x + self.down(torch.relu(self.up(x)))


@pytest.mark.parametrize("odd", [2**70, "\ud800"], ids=["large", "surrogate"])
def test_arguments_that_are_no_form_reach_the_forward(odd: Any) -> None:
    assert layers(Takes)[0](torch.randn(2, 5, 32), flag=odd).shape == (2, 5, 32)


class Adds(Block):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        return self.down(torch.relu(self.up(x))) + y


@pytest.fixture
def pair() -> Any:
    """Two inputs of blocks that add, none of which was traced before."""
    build._compiled.pop(Adds, None)
    return torch.randn(2, 2, 5, 32)


def has_plans(block: Any) -> bool:
    state = plans_of(block, Adds)
    return not state.reasons and any(state._plans.values())


@pytest.mark.parametrize("where", ["in this block", "in another of its kind"])
def test_a_call_that_fails_decides_nothing(where: str, pair: Any) -> None:
    """It would leave all calls of its form to the own forward, of all such blocks."""
    failing, other, _ = layers(Adds)
    tried = failing if where == "in this block" else other
    with pytest.raises(RuntimeError, match="must match"):
        failing(pair[0], torch.randn(2, 4, 32))
    tried(*pair)
    assert has_plans(tried)


def test_a_call_with_one_tensor_twice_decides_nothing_for_two(pair: Any) -> None:
    block, (x, y) = layers(Adds)[0], pair
    both, _ = block(x, x), block(x, y)
    assert has_plans(block)
    with OwnForwards():
        near(both, block(x, x), 1e-4)


def test_threads_that_call_at_once_leave_torch_as_it_was(pair: Any) -> None:
    """Its tracer says for all threads that it traces: two at once leave that said for good."""
    models = [layers(Adds) for _ in range(4)]
    start = threading.Barrier(len(models))

    def run(blocks: Any) -> None:
        with torch.no_grad():
            start.wait()
            for block in blocks:
                build._compiled.pop(Adds, None)
                block(*pair)

    threads = [threading.Thread(target=run, args=(blocks,)) for blocks in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not torch.fx._symbolic_trace.is_fx_symbolic_tracing()
    block = layers(Adds)[0]
    block(*pair)
    assert has_plans(block)


def test_an_attribute_that_changes_before_each_call_ends_the_tracing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, plan = [], build.new_plan
    monkeypatch.setattr(build, "new_plan", lambda *args: made.append(1) or plan(*args))
    block, x = layers(kind(lambda b: b.by_class))[0], torch.randn(2, 5, 32)
    for i in range(30):
        block.by_class = float(i)
        block(x)
    assert 0 < len(made) < 12


class Alone(Block):
    def forward(self, x: Tensor) -> Tensor:
        found = Block.forward(self, x)
        return found if x.shape[1] > 1 else 2 * found


def test_a_forward_may_ask_whether_an_axis_is_one() -> None:
    block = layers(Alone)[0]
    for length in (5, 1, 3):
        x = torch.randn(2, length, 32)
        found = block(x)
        with OwnForwards():
            near(found, block(x), 1e-4)
