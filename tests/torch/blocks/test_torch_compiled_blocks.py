"""Blocks of models under torch.compile: one operator each."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from octavo.errors import NotTrainableError
from octavo.torch import quantize_dynamic
from octavo.torch.blocks import block_operator as under_test

transformers = pytest.importorskip("transformers")

WIDTH, VOCABULARY = 48, 97


def model(recipe: str | None = None, **options: Any) -> Any:
    config = transformers.BertConfig(
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        vocab_size=VOCABULARY,
        max_position_embeddings=40,
        initializer_range=0.3,
        **options,
    )
    return quantize_dynamic(transformers.BertModel(config).eval(), recipe=recipe)


def tokens(batch: int = 3, length: int = 9) -> dict[str, Tensor]:
    ids = torch.randint(3, VOCABULARY, (batch, length))
    mask = torch.ones_like(ids)
    mask[1:, length - 2 :] = 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    with torch.no_grad():
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


@pytest.mark.parametrize("called_before", [False, True])
def test_each_block_is_one_operator(called_before: bool) -> None:
    quantized, feed = model(), tokens()
    if called_before:
        quantized(**feed)
    run, graphs = compiled(quantized)
    found = run(**feed).last_hidden_state
    assert torch.equal(found, quantized(**feed).last_hidden_state)
    assert graphs == [[BLOCK, BLOCK, "octavo.linear.default"]]  # and the pooler


@pytest.mark.sweep(2)
@pytest.mark.parametrize("recipe", [None, "int4"])
def test_lengths_stay_open(recipe: str | None) -> None:
    quantized = model(recipe)
    run, graphs = compiled(quantized, dynamic=True)
    for batch, length in ((2, 9), (3, 5), (5, 17), (4, 4)):
        feed = tokens(batch, length)
        found = run(**feed).last_hidden_state
        assert torch.equal(found, quantized(**feed).last_hidden_state)
    assert len(graphs) == 1


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # in torch itself
def test_inductor() -> None:
    quantized, feed = model(), tokens()
    run = torch.compile(quantized, fullgraph=True)
    torch.testing.assert_close(
        run(**feed).last_hidden_state, quantized(**feed).last_hidden_state, rtol=0, atol=0.02
    )


def _stack() -> tuple[Any, Tensor]:
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 96, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    return quantize_dynamic(encoder), torch.randn(2, 7, WIDTH)


def _vision() -> tuple[Any, Tensor]:
    config = transformers.ViTConfig(
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        image_size=32,
        patch_size=8,
    )
    return quantize_dynamic(transformers.ViTModel(config).eval()), torch.randn(2, 3, 32, 32)


@pytest.mark.parametrize("make", [_stack, _vision])
def test_other_models(make: Any) -> None:
    quantized, x = make()
    run, graphs = compiled(quantized)
    found, wanted = run(x), quantized(x)
    if not isinstance(found, Tensor):
        found, wanted = found[0], wanted[0]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    assert graphs[0].count(BLOCK) == 2


def test_blocks_compiled_by_themselves() -> None:
    quantized = model()
    x = torch.randn(2, 5, WIDTH)
    backend = Backend()
    for layer in quantized.encoder.layer:
        run = torch.compile(layer, fullgraph=True, backend=backend)
        assert torch.equal(run(x), layer(x))
    assert all(graph == [BLOCK] for graph in backend.graphs)


def test_weights_that_change_are_seen() -> None:
    quantized, feed = model(), tokens()
    run, graphs = compiled(quantized)
    first = run(**feed).last_hidden_state
    layer = quantized.encoder.layer[1]
    for change in (
        lambda: layer.output.dense.scale.mul_(1.5),
        layer.output.dense.packed.zero_,
        lambda: layer.output.LayerNorm.weight.mul_(2.0),
        lambda: layer.attention.self.query.load_state_dict(layer.attention.self.key.state_dict()),
        lambda: quantized.load_state_dict(model().state_dict()),
    ):
        change()
        found = run(**feed).last_hidden_state
        assert torch.equal(found, quantized(**feed).last_hidden_state)
        assert not torch.equal(found, first)
        first = found
    assert len(graphs) == 1


def test_what_a_forward_reads_is_guarded() -> None:
    quantized, feed = model(), tokens()
    run, graphs = compiled(quantized)
    run(**feed)
    quantized.encoder.layer[0].attention.output.LayerNorm.eps = 0.5
    found = run(**feed).last_hidden_state
    assert torch.equal(found, quantized(**feed).last_hidden_state)
    assert len(graphs) == 2


def test_a_block_with_hooks_inside_is_compiled_with_them() -> None:
    quantized, feed = model(), tokens()
    layer = quantized.encoder.layer[0]
    layer.intermediate.register_forward_hook(lambda module, given, made: made * 0)
    run, graphs = compiled(quantized)
    found = run(**feed).last_hidden_state
    torch.testing.assert_close(found, quantized(**feed).last_hidden_state, rtol=0, atol=0.1)
    assert graphs[0].count(BLOCK) == 1


def test_training_and_gradients_leave_blocks_to_their_forward() -> None:
    quantized, feed = model(), tokens()
    run, graphs = compiled(quantized)
    with torch.enable_grad():
        loss = run(**feed).last_hidden_state.sum()
        with pytest.raises(NotTrainableError):
            loss.backward()
    quantized.train()
    run(**feed)
    assert all(BLOCK not in graph for graph in graphs)


def test_an_exported_program_has_no_such_operator() -> None:
    quantized, x = _stack()
    for strict in (False, True):
        program = torch.export.export(quantized, (x,), strict=strict)
        assert BLOCK not in [str(n.target) for n in program.graph.nodes]
        torch.testing.assert_close(program.module()(x), quantized(x), rtol=0, atol=0.02)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # in torch
def test_an_exported_program_compiles_ahead_of_time(tmp_path: Path) -> None:
    quantized, x = _stack()
    program = torch.export.export(quantized, (x,))
    path = str(tmp_path / "stack.pt2")
    torch._inductor.aoti_compile_and_package(program, package_path=path)
    run = torch._inductor.aoti_load_package(path)
    torch.testing.assert_close(run(x), quantized(x), rtol=0, atol=0.02)


def test_a_model_is_not_kept_alive() -> None:
    quantized, feed = model(), tokens()
    run, _ = compiled(quantized)
    run(**feed)
    packed = quantized.encoder.layer[0].attention.self.query.packed
    watched = [weakref.ref(quantized), weakref.ref(packed)]
    del quantized, run, packed
    torch._dynamo.reset()
    gc.collect()
    assert [ref() for ref in watched] == [None, None]


def test_the_operator_keeps_its_word() -> None:
    layer, x = model().encoder.layer[0], torch.randn(2, 5, WIDTH)
    arguments: list[Any] = []

    def backend(graph: Any, examples: Any) -> Any:
        def run(*given: Any) -> Any:
            with _Watched(arguments):
                return graph(*given)

        return run

    torch.compile(layer, fullgraph=True, backend=backend)(x)
    ((inputs, weights, key),) = arguments
    given = ([t.detach() for t in inputs], [t.detach() for t in weights], key)
    torch.library.opcheck(under_test.block, given)


class _Watched(TorchDispatchMode):
    """Keeps the arguments of calls of the operator."""

    def __init__(self, arguments: list[Any]) -> None:
        super().__init__()
        self._arguments = arguments

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if str(op) == BLOCK:
            self._arguments.append(args)
        return op(*args, **(kwargs or {}))


def test_an_unknown_block_says_so() -> None:
    with pytest.raises(RuntimeError, match="no block of a model that was compiled"):
        torch.ops.octavo.block([torch.ones(1)], [torch.ones(1)], "none")
