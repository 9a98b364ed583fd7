"""What a model holds and what a recipe would do with it: its layers, their share of the work.

model.onnx
90.3 MB, opset 17, IR version 8, 51 layers with 90.1 MB of weights
What the recipe int8 would do:

Quantize: int8 per channel, activations per row
  36 MatMul (linear), 42.5 MB, 97.7% of the work
    layers  name                                     weights    bytes   work
         6  /encoder/layer.*/attention/query/MatMul  384x384   3.5 MB   8.1%
...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.core.attention_type import AttentionType
from octavo.core.layer import Kind, Layer
from octavo.recipe.plan import Decision
from octavo.results import words
from octavo.results.names import by_reason, grouped, in_series, shortened
from octavo.results.page import Page, Part, Result, Table, columns, indented, line
from octavo.results.words import clean, count, size


@dataclass(frozen=True)
class Inspection(Result):
    """One decision for each layer, in the model's order.

    `model` is what it is called (a file's path, a module's type), `model_bytes` its size (with
    external data; of a module: its tensors). `opset` and `ir_version` are an ONNX model's, as the
    file has them.

    `weight_bytes` has for each layer the bytes of its weights that no layer before it holds, and
    `macs` its multiply-accumulates in one run (None: not known), for inputs of `sizes` where the
    model leaves sizes open. `uncounted` nodes multiply as well and are no layers. `quantized` says
    what is quantized already, "" in a float model. `bytes_after`, where it is known, is about what
    `model_bytes` would become.
    """

    model: str
    model_bytes: int
    recipe_name: str
    decisions: tuple[Decision, ...]
    opset: int | None = None
    ir_version: int | None = None
    weight_bytes: tuple[int, ...] = ()
    macs: tuple[int | None, ...] = ()
    sizes: str = ""
    uncounted: int = 0
    quantized: str = ""
    bytes_after: int | None = None
    attention: AttentionType = AttentionType.FLOAT32
    """The recipe's."""
    keeps: bool = False
    """Whether what is quantized already stays so, and the layers are listed with it."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        onnx = {} if self.opset is None else {"opset": self.opset, "ir_version": self.ir_version}
        after = {} if self.bytes_after is None else {"bytes_after": self.bytes_after}
        count = len(self.decisions)
        rows = zip(
            self.decisions,
            self.weight_bytes or [d.layer.bytes for d in self.decisions],
            self.macs or [None] * count,
            strict=True,
        )
        return {
            "model": self.model,
            **onnx,
            "model_bytes": self.model_bytes,
            **after,
            "quantized": self.quantized,
            "recipe": self.recipe_name,
            **({"attention": self.attention.value} if self._other_attention else {}),
            "sizes": self.sizes,
            "uncounted": self.uncounted,
            "layers": [
                {
                    **d.layer.to_dict(),
                    "own_bytes": own,
                    "macs": macs,
                    "scheme": d.scheme.describe(),
                    "quantized": not d.scheme.is_float,
                    "reason": d.reason,
                }
                for d, own, macs in rows
            ],
        }

    @property
    def _other_attention(self) -> bool:
        return self.attention is not AttentionType.FLOAT32

    def page(self, verbose: bool = False) -> Page:
        """Lay the inventory out as a page; `verbose` names every layer."""
        rows = _rows(self)
        known = [row.macs for row in rows if row.macs is not None]
        all_known = self.macs != () and len(known) == len(rows) and not self.uncounted
        work = _Work(sum(known), all_known, any(known))
        yield line(clean(self.model), style="bold")
        onnx = f"opset {self.opset}, IR version {self.ir_version}, "
        layers = count(len(rows), "float layer" if self.quantized and not self.keeps else "layer")
        sizes = size(self.model_bytes) + _becomes(self.bytes_after)
        yield line(
            f"{sizes}, {'' if self.opset is None else onnx}"
            f"{layers} with {size(sum(row.own for row in rows))} of weights"
        )
        if self.quantized:
            yield line(("Quantized already", "bold yellow"), f": {clean(self.quantized)}.")
        if self.keeps:
            yield line(
                "octavo quantize keeps these integers; floats become what the recipe "
                f"{clean(self.recipe_name)} says:"
            )
        elif self.quantized:
            yield line(
                f"What the recipe {clean(self.recipe_name)} would do with the rest "
                "(octavo quantize --allow-quantized):"
            )
        else:
            yield line(f"What the recipe {clean(self.recipe_name)} would do:")
        if self._other_attention:
            yield line(
                f"Attention may multiply in {self.attention.value} (in PyTorch and target native)."
            )
        yield line("")
        for heading, style, chosen in (
            ("Quantize", "bold green", [r for r in rows if not r.decision.scheme.is_float]),
            ("Leave float", "bold", [r for r in rows if r.decision.scheme.is_float]),
        ):
            for what, members in _alike(chosen):
                yield line((heading, style), f": {clean(what)}")
                for (kind, op), some in grouped(members, lambda r: (r.layer.kind, r.layer.op)):
                    yield indented(_summary(kind, op, some, work))
                    yield _table(some, work, verbose)
                yield line("")
        yield from _footnotes(self, rows, work)


def _becomes(after: int | None) -> str:
    return "" if after is None else f" -> about {size(after)}"


_COUNT = "    layers"
_OTHER = 24  # characters of the name of a layer that shares


@dataclass(frozen=True)
class _Row:
    """One layer: `own` bytes are of weights that no layer before it holds."""

    decision: Decision
    own: int
    macs: int | None

    @property
    def layer(self) -> Layer:
        return self.decision.layer


@dataclass(frozen=True)
class _Work:
    """How work is written: as shares where all of it is known, else in multiply-accumulates."""

    total: int
    shares: bool
    shown: bool = True

    @property
    def heading(self) -> str:
        return "work" if self.shares else "MACs"

    def of(self, rows: Sequence[_Row]) -> str:
        """Format the work of some layers.

        The text is `?` where none of the work is known, and has `>` in front where some is not.
        """
        known = [row.macs for row in rows if row.macs is not None]
        if not known:
            return "?"
        text = _share(sum(known), self.total) if self.shares else words.amount(sum(known))
        return text if len(known) == len(rows) else f">{text}"


def _rows(found: Inspection) -> list[_Row]:
    """Make a row for each layer; of PyTorch modules, of unknown sizes, with the work per row."""
    own = found.weight_bytes or [d.layer.bytes for d in found.decisions]
    macs = found.macs or [_per_row(d.layer) for d in found.decisions]
    return [_Row(*row) for row in zip(found.decisions, own, macs, strict=True)]


def _per_row(layer: Layer) -> int | None:
    return 0 if layer.kind is Kind.EMBEDDING else layer.macs_per_row


def _alike(rows: Sequence[_Row]) -> Iterator[tuple[str, list[_Row]]]:
    """Layers held alike, or left float for one reason, with it."""
    for scheme, members in grouped(rows, lambda row: row.decision.scheme):
        for reason, places in by_reason([row.decision.reason for row in members]):
            held = "" if scheme.is_float else scheme.describe()
            what = ": ".join(filter(None, (held, reason))) or "no reason given"
            yield what, [members[i] for i in places]


def _summary(kind: Kind, op: str, members: Sequence[_Row], work: _Work) -> str:
    said = [f"{len(members):,} {clean(op)} ({kind.value})"]
    if held := sum(row.own for row in members):
        said.append(size(held))
    if work.shares and any(row.macs for row in members):
        said.append(f"{work.of(members)} of the work")
    return ", ".join(said)


def _table(members: Sequence[_Row], work: _Work, verbose: bool) -> Table:
    groups = [(row.layer.name, [row]) for row in members] if verbose else _series(members)
    single = len(groups) == len(members)
    cells = {
        _COUNT: [] if single else [f"{len(some):,}" for _, some in groups],
        "    layer" if single else "name": [_name(n, some[0].layer, verbose) for n, some in groups],
        "weights": [_weights(some[0].layer) for _, some in groups],
        "bytes": [_bytes(some) for _, some in groups],
        work.heading: [work.of(some) for _, some in groups] if work.shown else [],
    }
    shown = {heading: texts for heading, texts in cells.items() if any(texts)}
    table = columns(*shown, right=(_COUNT, "bytes", work.heading))
    for first, *rest in zip(*shown.values(), strict=True):
        table.add_row(indented(first, 4) if single else first, *rest)
    return table


def _series(members: Sequence[_Row]) -> list[tuple[str, list[_Row]]]:
    """Layers of blocks together, under a name that fits the table."""
    alike = [(_weights(r.layer), r.layer.scope, bool(r.layer.shares_with)) for r in members]
    series = in_series([row.layer.name for row in members], alike)
    short = shortened([one.name for one in series])
    return [(n, [members[i] for i in s.places]) for n, s in zip(short, series, strict=True)]


def _name(name: str, layer: Layer, verbose: bool) -> str:
    where = f" (in {clean(layer.scope)})" if layer.scope and verbose else ""
    others = layer.shares_with if verbose else shortened(layer.shares_with, _OTHER)
    named = words.names(others, None if verbose else 1)
    shared = f" (shares weights with {named})" if named else ""
    return words.name(name) + where + shared


def _weights(layer: Layer) -> str:
    dtype = "" if layer.dtype == "float32" else f" {clean(layer.dtype)}"
    return words.shapes(layer.weights) + dtype if layer.weights else ""


def _bytes(rows: Sequence[_Row]) -> str:
    own = sum(row.own for row in rows)
    if not own:
        return "shared" if any(row.layer.bytes for row in rows) else ""
    return size(own)


def _share(part: int, work: int) -> str:
    if not work or not part:
        return "0%"
    percent = 100 * part / work
    if percent < 0.1:
        return "<0.1%"
    return "100%" if percent == 100 else f"{percent:.1f}%"


def _footnotes(found: Inspection, rows: Sequence[_Row], work: _Work) -> Iterator[Part]:
    unknown = sum(row.macs is None for row in rows)
    if not work.shown:
        return
    if not found.macs:
        said = "MACs: multiply-accumulates for one row of input, such as a token"
    elif work.shares:
        said = "work: share of these layers' multiply-accumulates in a run"
    else:
        said = "MACs: multiply-accumulates in a run"
    sizes = f" on inputs {clean(found.sizes.replace(',', ', '))}" if found.sizes else ""
    yield line(said + sizes, style="dim")
    if unknown:
        yield line(f"?: not known ({count(unknown, 'layer')})", style="dim")
    if found.uncounted:
        yield line(f"not counted: {count(found.uncounted, 'node')} without weights", style="dim")
