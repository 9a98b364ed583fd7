"""PyTorch models: small ones of transformers with random weights, stacks, experts; ONNX exports;
the drop-in arguments."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from octavo import Recipe, Scheme
from octavo.torch import default_mapping, inspect, quantize_dynamic, report
from octavo.torch import qconfig as q
from octavo.torch.qconfig import QConfig
from tests.golden.corpus import Case
from tests.golden.facts import Facts, attempt, cleaned, inspection_facts, under
from tests.golden.torch_layers import ALL, A, Called, X, attend, mha, packed
from tests.golden.torch_support import (
    Make,
    case,
    exported,
    filled,
    model_facts,
    quantized,
)
from tests.models import seeded, transformer

VOCABULARY = 97
VOCABS = {"vocab_size": VOCABULARY}
VOCAB = {**VOCABS, "max_position_embeddings": 40}
MARKS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
PAIRS = {**VOCAB, "num_key_value_heads": 2}
FAMILIES = {
    **{f: f"{f}Model" for f in ("Camembert", "Electra", "Ernie", "RoCBert", "Roberta")},
    **{f: f"{f}Model" for f in ("XLMRoberta", "DistilBert")},
    "BertGeneration": "BertGenerationEncoder",
}


def tokens() -> dict[str, Tensor]:
    ids = torch.randint(3, VOCABULARY, (3, 9), generator=torch.Generator().manual_seed(5))
    mask = torch.ones_like(ids)
    mask[1, 7:], mask[2, 5:] = 0, 0
    return {"input_ids": ids, "attention_mask": mask}


def bert(name: str = "BertModel", **options: Any) -> Any:
    """A tiny model with random weights, large enough that every part of it shows."""
    return transformer(name, **VOCAB, **MARKS, initializer_range=0.3, **options)


RECIPES = (None, "int8", "int8-accurate")


def recipes(make: Callable[[], nn.Module], names: tuple[str | None, ...] = RECIPES) -> Case:
    """A model of transformers by several recipes, on padded sentences."""

    def run(folder: Path) -> Facts:
        facts: Facts = {}
        for recipe in names:
            made, failed = attempt(quantize_dynamic, make(), recipe=recipe)
            found = {"error": failed} if failed else model_facts(made, (), tokens())
            facts |= under(str(recipe), found)
        return facts

    return run


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(200, 32)
        self.lstm = nn.LSTM(32, 24, batch_first=True)
        self.norm = nn.LayerNorm(24)
        self.head = nn.Sequential(nn.Linear(24, 64), nn.GELU(), nn.Linear(64, 12))

    def forward(self, words: Tensor) -> Tensor:
        found: Tensor = self.head(self.norm(self.lstm(self.table(words))[0]))
        return found


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3)
        self.bn, self.pool = nn.BatchNorm2d(16), nn.MaxPool2d(2)
        self.fc = nn.Linear(16 * 5 * 5, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(torch.relu(self.conv1(x)))
        x = torch.relu(self.bn(self.conv2(x)))
        found: Tensor = self.fc(x.flatten(1))
        return found


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(150, 32)
        self.mid = nn.Linear(32, 32)
        self.head = nn.Linear(32, 150, bias=False)
        self.head.weight = self.table.weight

    def forward(self, i: Tensor) -> Tensor:
        found: Tensor = self.head(torch.tanh(self.mid(self.table(i))))
        return found


class Tables(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.signed, self.affine = nn.Embedding(50, 24, padding_idx=3), nn.Embedding(50, 24)
        self.floating, self.sixteen = nn.Embedding(50, 24), nn.Embedding(50, 24)
        self.mean, self.most = (
            nn.EmbeddingBag(50, 24, mode="mean"),
            nn.EmbeddingBag(50, 24, mode="max"),
        )
        self.sum = nn.EmbeddingBag(50, 24, mode="sum", padding_idx=0, include_last_offset=True)

    def forward(self, i: Tensor, starts: Tensor, weights: Tensor) -> tuple[Tensor, ...]:
        flat = i.reshape(-1)
        return (
            self.signed(i),
            self.affine(i),
            self.floating(i),
            self.sixteen(i),
            self.mean(i),
            self.most(flat, starts),
            self.sum(flat, starts, weights.reshape(-1)),
            self.sum(i, per_sample_weights=weights),
        )


WORDS = torch.tensor([[3, 0, 49, 7, 5], [5, 55, 0, 1, 2]])
AFFINE = Scheme.from_dict({"weight": {"qtype": "int8", "symmetric": False}})
HALF, BHALF = (
    QConfig(q.PlaceholderObserver, q.PlaceholderObserver.with_args(dtype=dtype))
    for dtype in (torch.float16, torch.bfloat16)
)
TABLES: dict[str, Any] = {
    "qconfig_spec": {
        nn.Embedding: Scheme(),
        nn.EmbeddingBag: Scheme(),
        "affine": AFFINE,
        "floating": q.float_qparams_weight_only_qconfig,
        "sixteen": HALF,
    }
}
STARTS = torch.tensor([0, 4, 4, 12])
IMAGES = seeded(2, 1, 14, 14)
THREE = torch.tensor([[3, 0, 49, 7], [5, 5, 0, 1], [0, 0, 0, 0]])

Build = Callable[[], tuple[nn.Module, tuple[Any, ...]]]


def _rec(kind: type[nn.Module], state: int = 0, **more: Any) -> Build:
    def make() -> tuple[nn.Module, tuple[Any, ...]]:
        steps = (3, 6, 20) if more.get("batch_first") else (6, 3, 20)
        args: list[Any] = [seeded(*steps)]
        size = more.get("proj_size") or 24
        if state:
            args.append(seeded(state, 3, size, seed=1, scale=0.5))
            if kind is nn.LSTM:
                args.append(seeded(state, 3, 24, seed=2, scale=0.5))
        return filled(Called(kind(20, 24, **more), _stated)), tuple(args)

    return make


def _stated(layer: nn.Module, x: Tensor, *state: Tensor) -> Any:
    return layer(x, (state if len(state) > 1 else state[0]) if state else None)


def _seq(*layers: nn.Module) -> nn.Module:
    return filled(nn.Sequential(*layers))


def _sixteen() -> Recipe:
    weight = {"qtype": "uint8", "symmetric": False}
    return Recipe("u", Scheme.from_dict({"weight": weight}))


def _conv1d() -> nn.Module:
    circular: dict[str, Any] = {"padding_mode": "circular", "padding": 2}
    first = nn.Conv1d(6, 8, 3, padding=1, groups=2)
    return _seq(first, nn.SiLU(), nn.Conv1d(8, 4, 3, stride=2, dilation=2, **circular))


def _cell(kind: type[nn.Module]) -> Build:
    return lambda: (filled(Called(kind(20, 24), lambda m, x: m(x))), (seeded(3, 20),))


def _two(*layers: nn.Module, x: Tensor = X) -> Build:
    """Layers, copied for each call."""
    return lambda: (_seq(*copy.deepcopy(layers)), (x,))


WIDE, DEEP = seeded(3, 300), seeded(3, 64)
LIN = nn.Linear(40, 48)
EXPORTS: dict[str, tuple[Build, Mapping[str, Any]]] = {
    "linear": (_two(LIN, nn.ReLU(), nn.Linear(48, 16)), {}),
    "linear accurate": (
        _two(nn.Linear(300, 48), nn.GELU(), nn.Linear(48, 16, bias=False), x=WIDE),
        {"recipe": "int8-accurate"},
    ),
    "linear blocks": (_two(nn.Linear(64, 48), nn.SiLU(), x=DEEP), {"recipe": "int8-block"}),
    "linear per tensor": (_two(LIN, nn.Tanh()), {"recipe": "int8-per-tensor"}),
    "linear float16": (_two(LIN, nn.ReLU()), {"dtype": torch.float16}),
    "linear bfloat16": (_two(LIN), {"qconfig_spec": {nn.Linear: BHALF}}),
    "linear uint8": (_two(LIN, nn.Sigmoid()), {"recipe": _sixteen()}),
    "half linear": (lambda: (_seq(nn.Linear(40, 48), nn.ReLU()).half(), (X.half(),)), {}),
    "tables": (lambda: (filled(Tables()), (THREE, STARTS, seeded(3, 4))), TABLES),
    "net": (lambda: (filled(Net()), (IMAGES,)), {"recipe": ALL}),
    "conv1d": (lambda: (_conv1d(), (seeded(2, 6, 20),)), {"recipe": ALL}),
    "tagger": (lambda: (filled(Tagger()), (WORDS,)), {"recipe": "int8"}),
    "tied": (lambda: (filled(Tied()), (WORDS,)), {"recipe": ALL}),
    "lstm": (_rec(nn.LSTM, 4, num_layers=2, bidirectional=True), {}),
    "lstm projection": (_rec(nn.LSTM, 0, proj_size=10, batch_first=True), {}),
    "gru": (_rec(nn.GRU, 2, bidirectional=True, batch_first=True), {}),
    "rnn relu": (_rec(nn.RNN, 2, num_layers=2, nonlinearity="relu", bias=False), {}),
    "lstm float16": (_rec(nn.LSTM, 0), {"dtype": torch.float16}),
    "lstm cell": (_cell(nn.LSTMCell), {}),
    "gru cell": (_cell(nn.GRUCell), {}),
    "rnn cell": (_cell(nn.RNNCell), {}),
    "mha": (lambda: (filled(Called(mha(batch_first=True)(), attend)), (A,)), {}),
    "transformer layer": (
        lambda: (filled(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)), (A,)),
        {},
    ),
}
OPSETS = {"linear": 18, "tagger": 21, "net": 23, "gru": 22}


def export(name: str) -> Case:
    """Portable and native, some for any processor too, and what the model itself gives."""

    def run(folder: Path) -> Facts:
        make, options = EXPORTS[name]
        model, args = make()
        facts, made = quantized("torch", lambda: (model, args), **options)
        if made is None:
            return facts
        shapes = {"dynamic_shapes": ({0: "batch"},)} if len(args) == 1 else {}
        facts |= exported(folder, made, args, "portable", **shapes)
        facts |= exported(folder, made, args, "native", target="native", **shapes)
        if name in OPSETS:
            options = {"cpu": "any", "opset_version": OPSETS[name]}
            facts |= exported(folder, made, args, "any", **options)
        return facts

    return run


def export_encoder(folder: Path) -> Facts:
    """A Bert with a mask, both targets, weights in a data file, names of inputs."""
    model = quantize_dynamic(bert())
    feed = tokens()
    ids, mask = feed["input_ids"], feed["attention_mask"]
    wrapped = Called(
        model, lambda m, i, k: m(input_ids=i, attention_mask=k).last_hidden_state
    ).eval()
    facts: Facts = {}
    for label, more in {
        "portable": {"input_names": ["ids", "mask"], "output_names": ["y"]},
        "native": {"target": "native", "external_data": True},
    }.items():
        facts |= exported(folder, wrapped, (ids, mask), label, **more)
    facts["files"] = sorted(p.name for p in folder.iterdir())
    return facts


def drop_in(folder: Path) -> Facts:
    """`qconfig_spec` in its forms, `mapping`, `inplace`, qconfig attributes, a second call."""
    specs: dict[str, dict[str, Any]] = {
        "set of types": {"qconfig_spec": {nn.Linear, nn.LSTM}},
        "set of names": {"qconfig_spec": {"head", "lstm"}},
        "dict": {"qconfig_spec": {nn.Linear: q.per_channel_dynamic_qconfig, "head.2": None}},
        "the model": {"qconfig_spec": {"": q.default_dynamic_qconfig}},
        "schemes": {"qconfig_spec": {"head.0": Scheme(), nn.Embedding: AFFINE}},
        "missing type": {"qconfig_spec": {nn.Linear, nn.GRU}},
        "mapping": {"mapping": {nn.Linear: default_mapping()[nn.Linear]}},
        "empty mapping": {"mapping": {}, "allow_nothing": True},
        "no dtype": {"dtype": "float16"},
        "recipe": {"recipe": "int8"},
        "inplace": {"inplace": True},
        "excluded": {"recipe": Recipe("r", Scheme())},
    }
    facts: Facts = {}
    for label, said in specs.items():
        found, _ = quantized(label, lambda: (filled(Tagger()), (WORDS,)), **said)
        facts |= found
    model = filled(Tagger())
    model.head[0].qconfig = q.float16_dynamic_qconfig  # type: ignore[assignment]
    model.lstm.qconfig = None  # type: ignore[assignment]
    facts |= under("attributes", model_facts(quantize_dynamic(model), (WORDS,)))
    first = quantize_dynamic(filled(Tagger()), {"lstm"})
    second = quantize_dynamic(first, {"head"})
    facts |= under("second call", model_facts(second, (WORDS,)))
    facts["printed report"] = [
        " ".join(line.split()) for line in cleaned(str(report(second))).splitlines()
    ]
    facts |= under("inspect", inspection_facts(inspect(filled(Tagger()))))
    facts |= under("inspect block", inspection_facts(inspect(filled(Tagger()), "int8-block")))
    facts["default mapping"] = sorted(
        f"{k.__name__}: {v.__name__}"
        for k, v in default_mapping().items()
        if k.__name__ != "Conv1D"
    )
    return facts


EXPERTS = {**PAIRS, "num_experts_per_tok": 2}
QWEN = {"num_experts": 4, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48}
MODERN = {"cls_token_id": 1, "sep_token_id": 2}
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2Model", {**VOCABS, "n_positions": 40, "initializer_range": 0.2}),
    "t5": ("T5EncoderModel", VOCABS),
    "albert": ("AlbertModel", {**VOCAB, "embedding_size": 32}),
    "mpnet": ("MPNetModel", VOCAB),
    "llama": ("LlamaModel", PAIRS),
    "mixtral": ("MixtralModel", {**EXPERTS, "hidden_size": 48}),
    "qwen2 moe": ("Qwen2MoeModel", {**EXPERTS, **QWEN}),
    "gpt oss": ("GptOssModel", {**EXPERTS, "head_dim": 12, "num_local_experts": 4}),
    "modernbert": ("ModernBertModel", {**VOCAB, **MARKS, **MODERN}),
}


def _sub() -> nn.Module:
    class Named(nn.Linear):
        pass

    class More(nn.Linear):
        def extra(self) -> int:
            return 3

    class Own(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) * 2

    return filled(nn.Sequential(Named(40, 40), More(40, 40), Own(40, 40)))


INT8, DEFAULT = {"recipe": "int8"}, {"default": {}}
SPECS = {"named": {"qconfig_spec": {"1": Scheme(), "0": Scheme()}}}
LENGTHS = torch.tensor([6, 2, 4])
WHOLE: dict[str, tuple[Make, Mapping[str, Mapping[str, Any]]]] = {
    "tagger": (
        lambda: (filled(Tagger()), (WORDS,)),
        {**DEFAULT, "int8": INT8, "accurate": {"recipe": "int8-accurate"}, "all": {"recipe": ALL}},
    ),
    "net": (
        lambda: (filled(Net()), (IMAGES,)),
        {**DEFAULT, "all": {"recipe": ALL}, "channels": {"qconfig_spec": {nn.Conv2d, nn.Linear}}},
    ),
    "tied": (
        lambda: (filled(Tied()), (WORDS,)),
        {**DEFAULT, "all": {"recipe": ALL}, "int8": INT8},
    ),
    "tables": (lambda: (filled(Tables()), (THREE, STARTS, seeded(3, 4))), {"default": TABLES}),
    "subclasses": (lambda: (_sub(), (X,)), {**DEFAULT, **SPECS}),
    "packed": (
        lambda: (
            filled(Called(nn.LSTM(24, 20, batch_first=True), packed)),
            (seeded(3, 6, 24), LENGTHS),
        ),
        DEFAULT,
    ),
}
VARIANTS: dict[str, dict[str, Any]] = {
    "relu": {"hidden_act": "relu"},
    "silu": {"hidden_act": "silu"},
    "gelu_new": {"hidden_act": "gelu_new"},
    "eager": {"attn_implementation": "eager"},
    "chunks": {"chunk_size_feed_forward": 3},
    "decoder": {"is_decoder": True},
}
CASES: dict[str, Case] = {
    "family Bert": recipes(bert),
    **{f"family {f}": recipes(partial(bert, name), (None,)) for f, name in FAMILIES.items()},
    **{
        f"family Bert, {name}": recipes(partial(bert, **options), (None,))
        for name, options in VARIANTS.items()
    },
    **{
        f"other {name}": recipes(partial(transformer, model, **sizes), (None, "int8"))
        for name, (model, sizes) in OTHERS.items()
    },
    **{f"export {name}": export(name) for name in EXPORTS},
    "export encoder": export_encoder,
    **{
        f"whole {name}": case(make, options, saved=next(iter(options)))
        for name, (make, options) in WHOLE.items()
    },
    "drop in": drop_in,
}
