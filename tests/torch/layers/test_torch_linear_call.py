"""The call of a quantized linear layer: the short way where all is plain, else Python's."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from octavo.errors import NotTrainableError
from octavo.torch import quantize_dynamic
from octavo.torch.layers.linear import QuantizedLinear
from octavo.torch.memory import LARGE
from tests import fresh


@pytest.fixture
def layer() -> QuantizedLinear:
    torch.manual_seed(0)
    made = quantize_dynamic(nn.Linear(24, 40))
    made(torch.zeros(1, 24))  # the first call binds the kernel, in Python
    return made


@contextmanager
def frames() -> Iterator[list[str]]:
    """Names of the Python functions that are called meanwhile."""
    called: list[str] = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, arg: called.append(frame.f_code.co_name))
    try:
        yield called
    finally:
        sys.setprofile(before)


def short(call: Callable[[], Any]) -> bool:
    """Whether `call` of a layer went without the layer's forward in Python."""
    with frames() as called, torch.no_grad():
        call()
    assert "__call__" in called
    return "forward" not in called


@pytest.mark.parametrize("shape", [(3, 24), (2, 5, 24), (0, 24), (2, 0, 24)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_plain_calls_go_the_short_way_with_the_same_bits(
    layer: QuantizedLinear, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    x = torch.randn(shape).to(dtype)
    assert short(lambda: layer(x))
    y = layer(x)
    assert (y.shape, y.dtype, y.is_contiguous()) == ((*shape[:-1], 40), dtype, True)
    assert torch.equal(y, layer.forward(x))


def test_in_every_grad_mode(layer: QuantizedLinear) -> None:
    x = torch.randn(3, 24, requires_grad=True)
    expected = layer.forward(x.detach())
    assert torch.equal(layer(x.detach()), expected)
    assert not layer(x.detach()).requires_grad
    with torch.inference_mode():
        assert layer(x).is_inference()
    with torch.no_grad():
        assert torch.equal(layer(x), expected)
    with pytest.raises(NotTrainableError):
        layer(x).sum().backward()


class Mode(TorchDispatchMode):
    seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Mode.seen += "octavo" in str(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")  # torch.jit, still deployed
def test_whoever_watches_sees_the_operator(layer: QuantizedLinear) -> None:
    x = torch.randn(3, 24)
    with Mode():
        layer(x)
    assert Mode.seen == 1
    traced = torch.jit.trace(layer, x, check_trace=False)
    assert "octavo::linear" in str(traced.graph)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        assert not short(lambda: layer(x))
    assert short(lambda: layer(x))


HOOKS = ["forward", "forward_pre", "full_backward", "full_backward_pre"]


@pytest.mark.parametrize("kind", HOOKS)
def test_hooks_are_called(layer: QuantizedLinear, kind: str) -> None:
    x = torch.randn(3, 24)
    own = getattr(layer, f"register_{kind}_hook")
    for register in (own, getattr(nn.modules.module, f"register_module_{kind}_hook")):
        called: list[nn.Module] = []
        handle = register(lambda module, *a, called=called: called.append(module))
        try:
            assert not short(lambda: layer(x))
        finally:
            handle.remove()
        assert called == ([layer] if kind.startswith("forward") else [])
        assert short(lambda: layer(x))


def test_threads_that_call_while_others_replace_buffers(layer: QuantizedLinear) -> None:
    """The kernel that runs keeps its arrays: two states mixed are finite, freed memory is not."""
    torch.manual_seed(1)
    first, second = (quantize_dynamic(nn.Linear(1024, 1024)) for _ in range(2))
    states = [copy.deepcopy(made.state_dict()) for made in (first, second)]
    x = torch.randn(64, 1024)  # long enough that Python's lock is given up
    wrong: list[int] = []

    def call() -> None:
        wrong.extend(i for i in range(100) if not first(x).isfinite().all())

    callers = [threading.Thread(target=call) for _ in range(2)]
    for caller in callers:
        caller.start()
    while any(caller.is_alive() for caller in callers):
        for state in states:
            buffers = {name: value.clone() for name, value in state.items()}
            first._fill(**{name: buffers.get(name) for name in first._buffers})
    for caller in callers:
        caller.join()
    assert not wrong


PATCHED: dict[str, tuple[Any, str]] = {
    "class": (QuantizedLinear, "forward"),
    "nn.Module": (nn.Module, "__call__"),
    "_call_impl": (nn.Module, "_call_impl"),
}


@pytest.mark.parametrize("where", PATCHED)
def test_patches_are_called(
    layer: QuantizedLinear, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[Any] = []
    monkeypatch.setattr(*PATCHED[where], lambda self, x: called.append(self))
    layer(torch.randn(3, 24))
    monkeypatch.undo()
    layer.forward = called.append  # type: ignore[method-assign]
    layer(torch.randn(3, 24))
    assert len(called) == 2


def test_a_compiled_module_runs_what_was_compiled(layer: QuantizedLinear) -> None:
    called: list[int] = []
    layer.compile(backend=lambda graph, inputs: called.append(1) or graph.forward)
    x = torch.randn(3, 24)
    assert torch.equal(layer(x), layer.forward(x))
    assert called


class Doubled(QuantizedLinear):
    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return 2 * super().forward(input)


def test_a_subclass_with_a_forward_of_its_own(layer: QuantizedLinear) -> None:
    doubled, x = Doubled(24, 40), torch.randn(3, 24)
    doubled.load_state_dict(layer.state_dict())
    for _ in range(2):
        assert torch.equal(doubled(x), 2 * layer(x))


OTHERS: dict[str, Callable[[Tensor], Tensor]] = {
    "one dimension": lambda x: x[0],
    "four dimensions": lambda x: x.reshape(1, 2, 2, 24),
    "gaps": lambda x: torch.cat([x, x], 1)[:, :24],
    "turned": lambda x: x.T.contiguous().T,
    "float64": lambda x: x.double(),
    "negated view": torch._neg_view,
    "zeros without memory": lambda x: torch._efficientzerotensor(x.shape),
}


@pytest.mark.parametrize("how", OTHERS)
def test_other_inputs_go_the_long_way(layer: QuantizedLinear, how: str) -> None:
    x = torch.randn(4, 24)
    given = OTHERS[how](x)
    assert not short(lambda: layer(given))
    plain = torch.empty(given.shape).copy_(given)
    expected = layer(plain.reshape(-1, 24)).reshape(*given.shape[:-1], 40)
    assert torch.equal(layer(given), expected.to(given.dtype))


def test_one_row_has_no_strides_to_speak_of(layer: QuantizedLinear) -> None:
    x = torch.randn(50)
    given = x.as_strided((1, 24), (7, 1))
    assert short(lambda: layer(given))
    assert torch.equal(layer(given), layer(x[:24].reshape(1, 24)))


def test_an_input_that_moves_during_the_call_is_read_where_it_is(layer: QuantizedLinear) -> None:
    """Making the output may collect garbage, whose callbacks may do anything."""
    x, moves, during = torch.randn(3, 24), [0], 0

    def move(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            moves[0] += 1
            x.set_(torch.randn(3, 24))

    before = gc.get_threshold()
    gc.callbacks.append(move)
    try:
        with torch.no_grad():
            for objects in range(20):  # that are made before garbage is collected
                kept = [[i] for i in range(50)]
                collections = moves[0]
                gc.set_threshold(gc.get_count()[0] + objects)
                found = layer(x)
                gc.set_threshold(*before)
                during += moves[0] > collections
                assert torch.equal(found, layer(x))
                del kept
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(move)
    assert during


def test_a_tensor_without_memory_is_refused(layer: QuantizedLinear) -> None:
    x = torch.randn(3, 24)
    x.untyped_storage().resize_(0)
    with torch.no_grad(), pytest.raises(ValueError, match=r"x: has shape \(3, 24\) and no memory"):
        layer(x)


@pytest.mark.skipif(not hasattr(Tensor, "__dlpack_c_exchange_api__"), reason="PyTorch before 2.10")
@pytest.mark.parametrize("without", [False, True])
def test_a_pytorch_without_the_exchange_goes_the_long_way(without: bool) -> None:
    """Before 2.10 there was none."""
    code = f"""
    import sys, torch
    if {without}:
        del torch.Tensor.__dlpack_c_exchange_api__
    from octavo.torch import quantize_dynamic
    layer, x, called = quantize_dynamic(torch.nn.Linear(24, 40)), torch.randn(3, 24), []
    with torch.no_grad():
        wanted = layer(x)
        sys.setprofile(lambda frame, event, arg: called.append(frame.f_code.co_name))
        found = layer(x)
        sys.setprofile(None)
    assert torch.equal(found, wanted)
    assert ("forward" in called) == {without}, called
    """
    fresh.python(code)


def test_a_keyword_a_parameter_and_a_large_output(layer: QuantizedLinear) -> None:
    x = torch.randn(4, 24)
    expected = layer(x)
    assert torch.equal(layer(input=x), expected)
    assert torch.equal(layer(nn.Parameter(x, requires_grad=False)), expected)
    rows = LARGE // 4 // 40 + 1
    many = x.repeat(rows // 4 + 1, 1)
    assert not short(lambda: layer(many))
    assert torch.equal(layer(many)[-4:], expected)


def test_calls_without_values_are_those_of_forward(layer: QuantizedLinear) -> None:
    x = torch.zeros(3, 24)
    y = layer(x.to("meta"))
    assert (y.is_meta, y.shape) == (True, (3, 40))
    for arguments in ((), (x, x)):
        with pytest.raises(TypeError, match="positional argument"):
            layer(*arguments)


def test_the_short_way_is_that_of_copies_and_changed_layers_too(layer: QuantizedLinear) -> None:
    x, other = torch.randn(3, 24), quantize_dynamic(nn.Linear(24, 40))
    for made in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(made(x), layer(x))
        assert short(lambda made=made: made(x))
    assert not torch.equal(layer(x), other(x))
    layer.load_state_dict(other.state_dict())
    assert torch.equal(layer(x), other(x))
    layer.bias = torch.zeros(40)
    assert torch.equal(layer(x), layer.forward(x))
    assert not torch.equal(layer(x), other(x))
    assert short(lambda: layer(x))


def test_nothing_is_kept(layer: QuantizedLinear) -> None:
    x = torch.randn(3, 24)
    layer(x)
    watched = (x, layer, layer.__dict__, x.dtype, layer.packed)
    before = [sys.getrefcount(value) for value in watched]
    for _ in range(100):
        layer(x)
    gone = weakref.ref(layer(x))
    assert gone() is None
    after = [sys.getrefcount(value) for value in watched]
    # Other tests' leftovers may go meanwhile; what a call kept would come a hundred times.
    assert all(a - b < 50 for a, b in zip(after, before, strict=True))
