"""Blocks of many families of models compute as one call what their own forwards do."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from octavo.torch import quantize_dynamic
from octavo.torch.blocks.calls import BLOCK
from octavo.torch.blocks.dynamic_type import has_dynamic_type, set_type, type_behind
from octavo.torch.blocks.find import one_call_type

transformers = pytest.importorskip("transformers")

WIDTH = 64
PLAIN = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES = {**PLAIN, "intermediate_size": 128}
TEXT = {**SIZES, "vocab_size": 99, "initializer_range": 0.3}
GROUPED = {**TEXT, "num_key_value_heads": 2}
IMAGE = {**SIZES, "image_size": 32, "patch_size": 8, "initializer_range": 0.3}
SEQ2SEQ = {
    "d_model": WIDTH,
    **{f"{part}_layers": 2 for part in ("encoder", "decoder")},
    **{f"{part}_attention_heads": 4 for part in ("encoder", "decoder")},
    **{f"{part}_ffn_dim": 128 for part in ("encoder", "decoder")},
    "vocab_size": 99,
    "init_std": 0.3,
}
DEBERTA = {
    **TEXT,
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_buckets": 8,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "type_vocab_size": 0,
}
SWIN = {"embed_dim": 32, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
GPTJ = {"n_embd": WIDTH, "n_layer": 2, "n_head": 4, "rotary_dim": 8, "vocab_size": 99}
T5 = {"d_model": WIDTH, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": 99}
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def made(family: str, options: dict[str, Any], kind: str = "Model") -> nn.Module:
    config = getattr(transformers, f"{family}Config")(**options)
    model: nn.Module = getattr(transformers, family + kind)(config).eval()
    return model


def tokens() -> dict[str, Tensor]:
    ids = torch.randint(3, 99, (2, 7))
    mask = torch.ones_like(ids)
    mask[1, 5:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def pixels() -> dict[str, Tensor]:
    return {"pixel_values": torch.randn(2, 3, 32, 32)}


def sentences() -> dict[str, Tensor]:
    return {**tokens(), "decoder_input_ids": torch.randint(3, 99, (2, 5))}


FAMILIES: dict[str, tuple[Callable[[], nn.Module], Callable[[], dict[str, Tensor]]]] = {
    "Albert": (lambda: made("Albert", {**TEXT, "embedding_size": 32}), tokens),
    "DeBERTa": (lambda: made("DebertaV2", DEBERTA), tokens),
    "Swin": (lambda: made("Swin", {**SWIN, "image_size": 32, "patch_size": 2}), pixels),
    "GPTJ": (lambda: made("GPTJ", {**GPTJ, "n_positions": 64, **ENDS}), tokens),
    "MPNet": (lambda: made("MPNet", TEXT), tokens),
    "ModernBert": (lambda: made("ModernBert", {**TEXT, **ENDS}), tokens),
    "ViT": (lambda: made("ViT", IMAGE), pixels),
    "DeiT": (lambda: made("DeiT", IMAGE), pixels),
    "Dinov2": (lambda: made("Dinov2", IMAGE), pixels),
    "CLIP": (lambda: made("CLIPVision", IMAGE), pixels),
    "Bart": (lambda: made("Bart", SEQ2SEQ), tokens),
    "T5": (lambda: made("T5", {**T5, "initializer_factor": 2.0}), sentences),
    "T5 with gates": (lambda: made("T5", {**T5, "feed_forward_proj": "gated-gelu"}), sentences),
    "GPT2": (lambda: made("GPT2", {"n_embd": WIDTH, "n_layer": 2, "n_head": 4, **ENDS}), tokens),
    "GPTNeoX": (lambda: made("GPTNeoX", {**TEXT, **ENDS}), tokens),
    "Llama": (lambda: made("Llama", GROUPED), tokens),
    "Qwen2": (lambda: made("Qwen2", GROUPED), tokens),
    "Qwen3": (lambda: made("Qwen3", {**GROUPED, "head_dim": 16}), tokens),
    "Mistral": (lambda: made("Mistral", {**GROUPED, "sliding_window": 4}), tokens),
    "Gemma": (lambda: made("Gemma", {**GROUPED, "head_dim": 16}), tokens),
    "Gemma2": (lambda: made("Gemma2", {**GROUPED, "head_dim": 16}), tokens),
    "Phi": (lambda: made("Phi", TEXT), tokens),
    "Phi3": (lambda: made("Phi3", {**GROUPED, **ENDS}), tokens),
    "Bloom": (lambda: made("Bloom", {"hidden_size": WIDTH, "n_layer": 2, "n_head": 4}), tokens),
    "torch": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(WIDTH, 4, 128, batch_first=True, norm_first=True),
            2,
            enable_nested_tensor=False,
        ).eval(),
        lambda: {"src": torch.randn(2, 7, WIDTH)},
    ),
}


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def blocks(of: nn.Module) -> list[nn.Module]:
    """Modules that may run as one call."""
    return [
        m
        for m in of.modules()
        if has_dynamic_type(m) and vars(type(m))["_made_by"][0] is one_call_type
    ]


def apart(of: nn.Module) -> nn.Module:
    """The model whose blocks run their own forward."""
    of = copy.deepcopy(of)
    for block in blocks(of):
        set_type(block, type_behind(type(block)))
    return of


def first(outputs: Any) -> Tensor:
    found: Tensor = outputs if isinstance(outputs, Tensor) else outputs[0]
    return found


def ran(of: nn.Module) -> int:
    """Blocks that have a plan."""
    return sum(any(vars(b).get(BLOCK)._plans.values()) for b in blocks(of) if BLOCK in vars(b))


@pytest.mark.parametrize("implementation", ["sdpa", pytest.param("eager", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FAMILIES)
def test_blocks_compute_what_their_forwards_do(name: str, implementation: str) -> None:
    make, feed = FAMILIES[name]
    exact, given = make(), feed()
    if implementation == "eager":
        if not hasattr(exact, "set_attn_implementation"):
            pytest.skip("it has no implementations")
        exact.set_attn_implementation("eager")
    quantized = quantize_dynamic(exact)
    found, own = first(quantized(**given)), first(apart(quantized)(**given))
    assert found.shape == own.shape
    assert (found - own).norm() <= 0.02 * own.norm()
    assert ran(quantized) >= (1 if name == "Albert" else 2)


def test_blocks_of_one_structure_are_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from octavo.torch.blocks import making

    traced = []
    compile_call = making.compile_call

    def counted(*given: Any) -> Any:
        traced.append(given)
        return compile_call(*given)

    monkeypatch.setattr(making, "compile_call", counted)
    model = made("Llama", {**GROUPED, "num_hidden_layers": 4, "intermediate_size": 136})
    quantized = quantize_dynamic(model)
    for length in (7, 9, 12):
        quantized(torch.randint(3, 99, (2, length)), use_cache=False)
    assert len(traced) == 1
    quantized(torch.randint(3, 99, (1, 7)), use_cache=False)  # one item: another trace
    assert len(traced) == 2
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


class TurnedFirstTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(TurnedFirst() for _ in range(2))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, cos, sin)
        return x


def test_positions_may_be_turned_before_heads_stand_before_tokens() -> None:
    quantized = quantize_dynamic(TurnedFirstTwice().eval())
    for batch, length in ((2, 5), (1, 1)):
        given = (torch.randn(batch, length, WIDTH), *torch.randn(2, 1, length, 1, 16))
        found, own = quantized(*given), apart(quantized)(*given)
        assert (found - own).norm() <= 0.02 * own.norm()
    plans = [plan for of in vars(blocks(quantized)[0])[BLOCK]._plans.values() for plan in of]
    assert len(plans) == 2
    for plan in plans:
        assert [node.op for node in plan.compiled.graph.nodes()].count("rotary") == 2


@pytest.mark.parametrize(
    "options",
    [{}, {"share_att_key": False, "pos_att_type": ["p2c"]}],
    ids=["shared", "own"],
)
def test_relative_positions_compute_what_indices_name(options: dict[str, Any]) -> None:
    quantized = quantize_dynamic(made("DebertaV2", {**DEBERTA, **options}))
    for batch, length in ((1, 5), (2, 30)):  # 30: further apart than there are positions
        given = {"input_ids": torch.randint(3, 99, (batch, length))}
        found, own = first(quantized(**given)), first(apart(quantized)(**given))
        assert (found - own).norm() <= 0.02 * own.norm()
    plans = [plan for of in vars(blocks(quantized)[0])[BLOCK]._plans.values() for plan in of]
    assert plans
    for plan in plans:
        ops = [node.op for node in plan.compiled.graph.nodes()]
        assert "gather" not in ops
        assert ops.count("gathered") == len(options.get("pos_att_type", "12"))
        assert "spanned" in ops


def test_a_weight_that_is_computed_is_computed_again_when_it_changes() -> None:
    quantized = quantize_dynamic(made("Gemma", {**GROUPED, "head_dim": 16}))
    given = {**tokens(), "use_cache": False}
    before = first(quantized(**given))
    quantized.layers[0].input_layernorm.weight.add_(0.5)  # the norm multiplies by 1 + weight
    found, own = first(quantized(**given)), first(apart(quantized)(**given))
    assert (found - own).norm() <= 0.02 * own.norm()
    assert (before - own).norm() > 0.02 * own.norm()


class Remembering(nn.Module):
    """A block whose forward leaves something behind."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 128), nn.Linear(128, WIDTH)
        self.calls = 0
        self.last: Any = None

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.last = torch.relu(self.up(x))
        return x + self.down(self.last)


def test_a_forward_that_writes_attributes_runs_itself() -> None:
    quantized = quantize_dynamic(nn.Sequential(Remembering(), Remembering()).eval())
    x = torch.randn(2, 5, WIDTH)
    for calls in (1, 2):
        quantized(x)
        assert [block.calls for block in quantized] == [calls, calls]
        assert type(quantized[1].last) is Tensor
    assert ran(quantized) == 0
