"""model_wise, optype_wise and op_wise: what a file says of layers, and what is done otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from octavo.core.qparams import QType
from octavo.recipe import (
    FLOAT,
    ActivationScheme,
    Granularity,
    Layer,
    Rule,
    Scheme,
    WeightScheme,
    patterns,
)
from octavo.recipe.yaml_files import Document
from octavo.tune.inc.sections import Place, Section, dotted

_GRANULARITY = {"per_channel": Granularity.CHANNEL, "per_tensor": Granularity.TENSOR}
_FLOAT16 = Scheme(WeightScheme(QType.FLOAT16, Granularity.TENSOR), None)
_INTEGERS = ("int8", "uint8")
_FLOATS = (("fp32",), ("bf16",))
_EVERYTHING = "default_qconfig"  # an op_wise key of Neural Compressor's PyTorch FX front end

# What Octavo's ONNX front end calls operators that go by another name in Neural Compressor.
_CONTRIB = ("Attention", "EmbedLayerNormalization", "FusedMatMul")
_FROM_TENSORFLOW = {
    **dict.fromkeys("conv2d Conv2D depthwise_conv2d DepthwiseConv2dNative".split(), ("Conv",)),
    **dict.fromkeys(["matmul", "MatMul"], ("MatMul", "Gemm")),
    **dict.fromkeys(["BatchMatMul", "BatchMatMulV2"], ("MatMul",)),
}

_BF16 = "Octavo has no bfloat16 kernels: bf16 stays float32 (fp16 for weights of half the size)"
# The part, its key, a value that is done otherwise, and how.
_OTHERWISE = (
    ("weight", "dtype", "bf16", _BF16),
    ("activation", "dtype", "bf16", _BF16),
    ("activation", "dtype", "int8", "activations are uint8 (with a zero point), never int8"),
    ("activation", "dtype", "fp16", "activations stay float32 where the file says fp16"),
    (
        *("activation", "scheme", "sym"),
        "activations keep a zero point (asym), which is never less accurate than sym",
    ),
    (
        *("activation", "granularity", "per_tensor"),
        "one scale for a whole activation, as the file says; leave it out for one a row, which is "
        "more accurate",
    ),
)


class Part(NamedTuple):
    """What is said of weights, or of activations: the values a search may take, the first one
    first. Empty where nothing is said."""

    granularity: tuple[str, ...] = ()
    scheme: tuple[str, ...] = ()
    dtype: tuple[str, ...] = ()
    algorithm: tuple[str, ...] = ()

    def over(self, weaker: Part) -> Part:
        """Return this part, with what it leaves out taken from `weaker`."""
        return Part(*(mine or theirs for mine, theirs in zip(self, weaker, strict=True)))

    def choices(self) -> Iterator[tuple[str, ...]]:
        """Yield a value of each field, "" where nothing is said: every combination."""
        return product(*(said or ("",) for said in self))


@dataclass(frozen=True)
class LayerEntry:
    """What the file says of the layers whose names match `regex` whole, or of one of the operator
    types `ops`; of all layers where it has neither. `line` is where, `path` as what."""

    path: str
    line: int
    weight: Part = Part()  # noqa: RUF009 - it cannot be changed
    activation: Part = Part()  # noqa: RUF009
    regex: str | None = None
    ops: tuple[str, ...] = ()

    def matches(self, layer: Layer) -> bool:
        """Return whether the entry speaks of `layer`."""
        if self.regex is not None:
            return patterns.matches(self.regex, layer.name)
        return not self.ops or layer.op in self.ops

    def over(self, weaker: LayerEntry | None) -> LayerEntry:
        """Return this entry, with what it leaves out taken from `weaker`."""
        if weaker is None:
            return self
        weight, activation = (
            self.weight.over(weaker.weight),
            self.activation.over(weaker.activation),
        )
        return replace(self, weight=weight, activation=activation)

    def schemes(self, start: Scheme) -> tuple[Scheme, ...]:
        """Return what the layers may become, the file's first choice first; as `start` where it is
        silent."""
        pairs = product(self.weight.choices(), self.activation.choices())
        return tuple(dict.fromkeys(_scheme(start, weight, act) for weight, act in pairs))

    def rules(self, scheme: Scheme) -> tuple[Rule, ...]:
        """Return rules that give the layers `scheme`."""
        reason = f"{self.path} says so (line {self.line})" if scheme.is_float else ""
        if self.regex is not None:
            return (Rule(scheme, regex=self.regex, reason=reason, line=self.line),)
        return tuple(Rule(scheme, op=op, reason=reason, line=self.line) for op in self.ops)


def _scheme(start: Scheme, weight: tuple[str, ...], activation: tuple[str, ...]) -> Scheme:
    granularity, sign, dtype, algorithm = weight
    if dtype in ("fp32", "bf16"):
        return FLOAT
    if dtype == "fp16":
        return _FLOAT16
    base = start if start.weight is not None else Scheme()
    assert base.weight is not None
    kept = _GRANULARITY.get(granularity, base.weight.granularity)
    observer = {"": base.weight.observer, "minmax": "minmax", "kl": "histogram"}[algorithm]
    held = replace(
        base.weight,
        qtype=QType(dtype) if dtype in _INTEGERS else base.weight.qtype,
        granularity=kept,
        symmetric=sign == "sym" if sign else base.weight.symmetric,
        observer=observer if kept is Granularity.TENSOR else "minmax",
        block=base.weight.block if kept is Granularity.BLOCK else None,
    )
    return Scheme(held, _activation(base.activation, activation) if held.qtype.is_integer else None)


def _activation(
    start: ActivationScheme | None, activation: tuple[str, ...]
) -> ActivationScheme | None:
    granularity, _, dtype, _ = activation
    if (dtype and dtype not in _INTEGERS) or (start is None and not dtype):
        return None
    if granularity:
        return ActivationScheme(granularity=_GRANULARITY[granularity])
    return start or ActivationScheme()


class LayerEntries(NamedTuple):
    """What a file says of all layers (None: nothing), and of some: op_wise, then optype_wise.

    `notes` say what is done otherwise.
    """

    model_wise: LayerEntry | None
    others: tuple[LayerEntry, ...]
    notes: tuple[str, ...]


def read_entries(root: Section, front_end: str, document: Document) -> LayerEntries:
    """Return the entries of a file's quantization.

    As in Neural Compressor an op_wise entry leaves to model_wise what it does not say, and an
    optype_wise entry stands alone.
    """

    def entries(key: str) -> dict[str, LayerEntry]:
        said = root.get("quantization", key, default={}).items()
        found = {name: _entry(wise, ("quantization", key, name), document) for name, wise in said}
        return {name: entry for name, entry in found.items() if entry is not None}

    place = ("quantization", "model_wise")
    model = _entry(root.get(*place), place, document)
    notes = [] if model is None else [*_notes_on(model, model)]
    names = entries("op_wise")
    rest = names.pop(_EVERYTHING, None)
    if rest is not None:
        model = rest.over(model)
        notes += _notes_on(rest, model)
    found = []
    for name, entry in names.items():
        # A stack of RNN layers is one operator there; here each of its layers has a name.
        regex = rf"(?:{name})(?:\.l\d+)?" if front_end == "torch" else name
        found.append(replace(entry.over(model), regex=regex))
        notes += _notes_on(entry, found[-1])
    for name, entry in entries("optype_wise").items():
        notes += _notes_on(entry, entry)
        found.append(replace(entry, ops=_operators(name, front_end)))
    return LayerEntries(model, tuple(found), tuple(notes))


def _operators(name: str, front_end: str) -> tuple[str, ...]:
    if front_end == "tensorflow" and name in _FROM_TENSORFLOW:
        return _FROM_TENSORFLOW[name]
    contrib = front_end != "torch" and name in _CONTRIB
    return (name, f"com.microsoft.{name}") if contrib else (name,)


def _entry(wise: Section | None, place: Place, document: Document) -> LayerEntry | None:
    """Return the entry at `place`; None where nothing is said."""
    if wise is None:
        return None
    weight, activation = (
        Part(**{key: wise.get(part, key, default=()) for key in Part._fields})
        for part in ("weight", "activation")
    )
    if not any((*weight, *activation)):
        return None
    return LayerEntry(dotted(place), document.line(place), weight, activation)


def _notes_on(entry: LayerEntry, whole: LayerEntry) -> Iterator[str]:
    """Yield what is done otherwise than `entry` says; `whole` has what it leaves to a weaker one
    too."""
    where = f"line {entry.line}: {entry.path}"
    if "kl" in entry.weight.algorithm and whole.weight.granularity != ("per_tensor",):
        yield (
            f"{where}.weight.algorithm: kl chooses one range for a whole weight; with a scale for "
            "each channel the range is from the least to the greatest value"
        )
    for part, key, value, words in _OTHERWISE:
        if value in getattr(getattr(entry, part), key):
            yield f"{where}.{part}.{key}: {words}"
    if entry.activation.dtype[:1] == ("fp32",) and whole.weight.dtype[:1] not in _FLOATS:
        yield (
            f"{where}.activation.dtype: weights are stored small and activations stay float; say "
            "fp32 for weight.dtype too to leave a layer alone"
        )
