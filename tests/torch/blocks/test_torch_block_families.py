"""Blocks as families of models build them compute as one call what their own forwards do.

The families of benchmarks/zoo are in test_torch_families.py.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from octavo.torch import quantize_dynamic
from octavo.torch.blocks import build
from tests.models import net, transformer
from tests.torch.blocks.one_call import apart, blocks, near, plans, ran, tokens

pytest.importorskip("transformers")

WIDTH = 64
LARGE = {"initializer_range": 0.3}
GPTJ = {"n_embd": WIDTH, "n_layer": 2, "n_head": 4, "rotary_dim": 8, "n_positions": 64}
HEADS = {"num_key_value_heads": 2, "head_dim": 16}
DEBERTA = {
    **LARGE,
    **{"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8},
    **{"share_att_key": True, "norm_rel_ebd": "layer_norm", "type_vocab_size": 0},
}
FAMILIES: dict[str, dict[str, Any]] = {
    "AlbertModel": {**LARGE, "embedding_size": 32},
    "GPTJModel": GPTJ,
    "PhiModel": LARGE,
}


def first(outputs: Any) -> Tensor:
    found: Tensor = outputs if isinstance(outputs, Tensor) else outputs[0]
    return found


def as_its_own(quantized: nn.Module, **given: Any) -> None:
    near(first(quantized(**given)), first(apart(quantized)(**given)))


@pytest.mark.parametrize("implementation", ["sdpa", pytest.param("eager", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FAMILIES)
def test_blocks_compute_what_their_forwards_do(name: str, implementation: str) -> None:
    exact = transformer(name, **FAMILIES[name])
    if implementation == "eager":
        exact.set_attn_implementation("eager")
    quantized, given = quantize_dynamic(exact), tokens(padded=True)
    as_its_own(quantized, **given)
    assert ran(quantized) >= (1 if name == "AlbertModel" else 2)


def test_blocks_of_one_structure_are_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    traced, compile_call = [], build.compile_call
    monkeypatch.setattr(
        build, "compile_call", lambda *given: traced.append(given) or compile_call(*given)
    )
    model = transformer("LlamaModel", **LARGE, num_hidden_layers=4, intermediate_size=136)
    quantized = quantize_dynamic(model)
    for batch, lengths, traces in ((2, (7, 9, 12), 1), (1, (7,), 2)):  # one item: another trace
        for length in lengths:
            quantized(torch.randint(3, 99, (batch, length)), use_cache=False)
        assert len(traced) == traces
    assert ran(quantized) == 4


class TurnedFirst(nn.Module):
    """A block that turns [B, S, H, D]: its tables are [1, S, 1, D]."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        q, k, v = (h.unflatten(-1, (4, -1)) for h in self.qkv(x).chunk(3, -1))
        q, k = (h * cos + torch.cat((-h[..., 8:], h[..., :8]), -1) * sin for h in (q, k))
        heads = (h.transpose(1, 2) for h in (q, k, v))
        found = nn.functional.scaled_dot_product_attention(*heads)
        return x + self.out(found.transpose(1, 2).flatten(2))


def through(model: Any, x: Tensor, *more: Tensor) -> Tensor:
    for layer in model.layers:
        x = layer(x, *more)
    return x


def test_positions_may_be_turned_before_heads_stand_before_tokens() -> None:
    model = net(through, layers=nn.ModuleList(TurnedFirst() for _ in range(2)))
    quantized = quantize_dynamic(model.eval())
    for batch, length in ((2, 5), (1, 1)):
        given = (torch.randn(batch, length, WIDTH), *torch.randn(2, 1, length, 1, 16))
        near(quantized(*given), apart(quantized)(*given))
    found = plans(blocks(quantized)[0])
    assert len(found) == 2
    for plan in found:
        assert [node.op for node in plan.compiled.graph.nodes()].count("rotary") == 2


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="shared"),
        pytest.param(
            {"share_att_key": False, "pos_att_type": ["p2c"]}, id="own", marks=pytest.mark.slow
        ),
    ],
)
def test_relative_positions_compute_what_indices_name(options: dict[str, Any]) -> None:
    quantized = quantize_dynamic(transformer("DebertaV2Model", **(DEBERTA | options)))
    for batch, length in ((1, 5), (2, 30)):  # 30: further apart than there are positions
        as_its_own(quantized, input_ids=torch.randint(3, 99, (batch, length)))
    found = plans(blocks(quantized)[0])
    assert found
    for plan in found:
        ops = [node.op for node in plan.compiled.graph.nodes()]
        assert "gather" not in ops
        assert ops.count("gathered") == len(options.get("pos_att_type", "12"))
        assert "spanned" in ops


def test_a_weight_that_is_computed_is_computed_again_when_it_changes() -> None:
    quantized = quantize_dynamic(transformer("GemmaModel", **LARGE, **HEADS))
    given = {**tokens(), "use_cache": False}
    before = first(quantized(**given))
    quantized.layers[0].input_layernorm.weight.add_(0.5)  # the norm multiplies by 1 + weight
    as_its_own(quantized, **given)
    after = first(quantized(**given))
    assert (before - after).norm() > 0.02 * after.norm()
