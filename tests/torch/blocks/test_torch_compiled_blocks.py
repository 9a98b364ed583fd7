"""Blocks of models under torch.compile: one operator each."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from octavo.core.qparams import QType
from octavo.errors import NotTrainableError
from octavo.recipe import preset
from octavo.recipe.scheme import in_groups
from octavo.torch import quantize_dynamic
from octavo.torch.blocks.plan import block_operator as under_test
from tests import models
from tests.torch.blocks.one_call import quantized_bert, tokens

pytestmark = pytest.mark.usefixtures("one_registry")

pytest.importorskip("transformers")

WIDTH = 48


class Block(nn.Module):
    """The least that runs as one call."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x + self.down(torch.relu(self.up(x))))


def one_block(recipe: Any = None) -> tuple[Any, Tensor]:
    torch.manual_seed(0)
    made = quantize_dynamic(nn.Sequential(Block(), Block()), recipe=recipe)
    return made[0], torch.randn(2, 5, WIDTH)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Backend:
    """Keeps the graphs that a compiler behind AOTAutograd is given."""

    def __init__(self) -> None:
        self.graphs: list[list[str]] = []

    def __call__(self, graph: Any, examples: Any) -> Any:
        from torch._dynamo.backends.common import aot_autograd  # takes long to import

        return aot_autograd(fw_compiler=self._keep)(graph, examples)

    def _keep(self, graph: Any, examples: Any) -> Any:
        calls = [str(n.target) for n in graph.graph.nodes if n.op == "call_function"]
        self.graphs.append([name for name in calls if name.startswith("octavo")])
        return make_boxed_func(graph)


def compiled(of: nn.Module, **options: Any) -> tuple[Any, list[list[str]]]:
    backend = Backend()
    return torch.compile(of, fullgraph=True, backend=backend, **options), backend.graphs


BLOCK = "octavo.block.default"


def states(of: Any, feed: dict[str, Tensor]) -> Tensor:
    found: Tensor = of(**feed).last_hidden_state
    return found


def test_each_block_is_one_operator_and_lengths_stay_open() -> None:
    encoder = quantized_bert().encoder
    run, graphs = compiled(encoder, dynamic=True)
    for batch, length in ((2, 9), (5, 17), (4, 8)):
        x = torch.randn(batch, length, WIDTH)
        assert torch.equal(run(x).last_hidden_state, encoder(x).last_hidden_state)
    assert graphs == [[BLOCK, BLOCK]]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [None, "int4"])
def test_whole_models_of_any_length(recipe: str | None) -> None:
    quantized = quantized_bert(recipe)
    run, graphs = compiled(quantized, dynamic=True)
    for batch, length in ((2, 9), (3, 5), (5, 17), (4, 8)):
        feed = tokens(batch, length, padded=True)
        assert torch.equal(states(run, feed), states(quantized, feed))
    assert [graph.count(BLOCK) for graph in graphs] == [2]


@pytest.mark.slow  # one operator more than test_torch_linear.py compiles so
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # in torch itself
def test_inductor() -> None:
    quantized, feed = quantized_bert(), tokens(padded=True)
    run = torch.compile(quantized, fullgraph=True)
    torch.testing.assert_close(states(run, feed), states(quantized, feed), rtol=0, atol=0.02)


def _stack() -> tuple[Any, Tensor]:
    return quantize_dynamic(models.encoder(WIDTH)), torch.randn(2, 7, WIDTH)


def test_layers_of_torch() -> None:
    quantized, x = _stack()
    run, graphs = compiled(quantized)
    torch.testing.assert_close(run(x), quantized(x), rtol=0, atol=1e-5)
    assert graphs[0].count(BLOCK) == 2


@pytest.mark.parametrize("called_before", [False, True])
def test_what_changes_is_seen(called_before: bool) -> None:
    block, x = one_block()
    if called_before:
        block(x)
    run, graphs = compiled(block)
    before = run(x)
    assert torch.equal(before, block(x))
    for change in (
        lambda: block.down.scale.mul_(1.5),
        block.down.packed.zero_,
        lambda: block.norm.weight.mul_(2.0),
        lambda: block.load_state_dict(one_block()[0].state_dict()),
    ):
        change()
        found = run(x)
        assert torch.equal(found, block(x))
        assert not torch.equal(found, before)
        before = found
    assert graphs == [[BLOCK]]
    block.norm.eps = 0.5  # no weight: what the forward reads is guarded
    assert torch.equal(run(x), block(x))
    assert len(graphs) == 2


def test_a_block_with_hooks_inside_is_compiled_with_them() -> None:
    block, x = one_block()
    block.up.register_forward_hook(lambda module, given, made: made * 0)
    run, graphs = compiled(block)
    torch.testing.assert_close(run(x), block(x), rtol=0, atol=0.1)
    assert graphs and BLOCK not in graphs[0]


def test_training_and_gradients_leave_blocks_to_their_forward() -> None:
    block, x = one_block()
    run, graphs = compiled(block)
    with torch.enable_grad():
        loss = run(x.clone().requires_grad_()).sum()
        with pytest.raises(NotTrainableError):
            loss.backward()
    block.train()
    run(x)
    assert graphs and all(BLOCK not in graph for graph in graphs)


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_has_no_such_operator(strict: bool) -> None:
    block, x = one_block()
    program = torch.export.export(block, (x,), strict=strict)
    assert BLOCK not in [str(n.target) for n in program.graph.nodes]
    torch.testing.assert_close(program.module()(x), block(x), rtol=0, atol=0.02)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # in torch
def test_an_exported_program_compiles_ahead_of_time(tmp_path: Path) -> None:
    quantized, x = _stack()
    program = torch.export.export(quantized, (x,))
    path = str(tmp_path / "stack.pt2")
    torch._inductor.aoti_compile_and_package(program, package_path=path)
    run = torch._inductor.aoti_load_package(path)
    torch.testing.assert_close(run(x), quantized(x), rtol=0, atol=0.02)


def test_a_block_is_not_kept_alive() -> None:
    block, x = one_block()
    run, _ = compiled(block)
    run(x)
    packed = block.up.packed
    watched = [weakref.ref(block), weakref.ref(packed)]
    del block, run, packed
    torch._dynamo.reset()
    gc.collect()
    assert [ref() for ref in watched] == [None, None]


class _Watched(TorchDispatchMode):
    """Keeps the arguments of calls of the operator."""

    def __init__(self) -> None:
        super().__init__()
        self.arguments: list[Any] = []

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if str(op) == BLOCK:
            self.arguments.append(args)
        return op(*args, **(kwargs or {}))


def one_call() -> tuple[list[Tensor], list[Tensor], str]:
    """What a compiled block gives the operator."""
    block, x = one_block()
    watched = _Watched()

    def backend(graph: Any, examples: Any) -> Any:
        def run(*given: Any) -> Any:
            with watched:
                return graph(*given)

        return run

    torch.compile(block, fullgraph=True, backend=backend)(x)
    ((inputs, weights, key),) = watched.arguments
    return [t.detach() for t in inputs], [t.detach() for t in weights], key


def test_the_operator_keeps_its_word() -> None:
    torch.library.opcheck(under_test.block, one_call())


def test_what_a_block_is_not_for_is_refused() -> None:
    """Each argument of another shape, dtype or count, after a call that fits."""
    inputs, weights, key = one_call()
    under_test.block(inputs, weights, key)
    others: tuple[Callable[[Tensor], Tensor], ...] = (
        lambda t: t[..., :-1],
        lambda t: t[None],
        lambda t: t.reshape(-1)[:1].squeeze(0),
        lambda t: torch.cat([t, t], -1),
        lambda t: t.to(torch.float64),
        lambda t: t.to(torch.int32),
    )
    for given in (inputs, weights):
        for place, tensor in enumerate(given):
            for other in others:
                kept, given[place] = tensor, other(tensor).clone()  # of memory of its own
                with pytest.raises((TypeError, ValueError), match=r"needs|traced for"):
                    under_test.block(inputs, weights, key)
                    pytest.fail(f"{place}: {given[place].shape} of {given[place].dtype}")
                given[place] = kept
    for fewer in (([], weights), (inputs, []), (inputs * 2, weights), (inputs, weights[1:])):
        with pytest.raises((TypeError, ValueError), match="needs"):
            under_test.block(*fewer, key)


def test_an_unknown_block_says_so() -> None:
    with pytest.raises(RuntimeError, match="no block"):
        torch.ops.octavo.block([torch.ones(1)], [torch.ones(1)], "none")


def test_blocks_whose_weights_have_other_formats_are_others() -> None:
    for bits in (QType.INT4, QType.INT8):
        block, x = one_block(replace(preset("int4"), default=in_groups(bits, 32)))
        run, graphs = compiled(block)
        torch.testing.assert_close(run(x), block(x), rtol=0, atol=1e-5)
        assert graphs == [[BLOCK]]
