"""model_wise, optype_wise and op_wise as entries, and what is done otherwise than they say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from octavo.recipe.yaml_files import Document
from octavo.tune.config.entry import Entry, Part
from octavo.tune.config.problems import Place, dotted
from octavo.tune.config.section import Section

_FLOATS = (("fp32",), ("bf16",))
_EVERYTHING = "default_qconfig"  # an op_wise key of Neural Compressor's PyTorch FX front end

# What Octavo's ONNX front end calls operators that go by another name in Neural Compressor.
_CONTRIB = ("Attention", "EmbedLayerNormalization", "FusedMatMul")
_FROM_TENSORFLOW = {
    "conv2d": ("Conv",),
    "Conv2D": ("Conv",),
    "depthwise_conv2d": ("Conv",),
    "DepthwiseConv2dNative": ("Conv",),
    "matmul": ("MatMul", "Gemm"),
    "MatMul": ("MatMul", "Gemm"),
    "BatchMatMul": ("MatMul",),
    "BatchMatMulV2": ("MatMul",),
}


@dataclass(frozen=True)
class Entries:
    """What a file says of all layers (None: nothing), and of some: op_wise, then optype_wise.

    `notes` say what is done otherwise.
    """

    model_wise: Entry | None = None
    others: tuple[Entry, ...] = ()
    notes: tuple[str, ...] = ()


def read_entries(quantization: Section | None, front_end: str, document: Document) -> Entries:
    """The entries of `quantization`.

    As in Neural Compressor an op_wise entry leaves to model_wise what it does not say, and an
    optype_wise entry stands alone.
    """
    if quantization is None:
        return Entries()
    model = _entry(quantization.get("model_wise"), ("quantization", "model_wise"), document)
    notes = [] if model is None else [*_notes_on(model, model)]
    types = _named(quantization, "optype_wise", document)
    names = _named(quantization, "op_wise", document)
    rest = names.pop(_EVERYTHING, None)
    if rest is not None:
        model = rest if model is None else rest.over(model)
        notes += _notes_on(rest, model)
    found = []
    for name, entry in names.items():
        # A stack of RNN layers is one operator there; here each of its layers has a name.
        regex = rf"(?:{name})(?:\.l\d+)?" if front_end == "torch" else name
        whole = replace(entry if model is None else entry.over(model), regex=regex)
        notes += _notes_on(entry, whole)
        found.append(whole)
    for name, entry in types.items():
        notes += _notes_on(entry, entry)
        found.append(replace(entry, ops=_operators(name, front_end)))
    return Entries(model, tuple(found), tuple(notes))


def _named(quantization: Section, key: str, document: Document) -> dict[str, Entry]:
    said = quantization.get(key, default={}).items()
    found = {name: _entry(wise, ("quantization", key, name), document) for name, wise in said}
    return {name: entry for name, entry in found.items() if entry is not None}


def _operators(name: str, front_end: str) -> tuple[str, ...]:
    if front_end == "torch":
        return (name,)
    if front_end == "tensorflow" and name in _FROM_TENSORFLOW:
        return _FROM_TENSORFLOW[name]
    return (name, f"com.microsoft.{name}") if name in _CONTRIB else (name,)


def _entry(wise: Section | None, place: Place, document: Document) -> Entry | None:
    """The entry at `place`; None where nothing is said."""
    if wise is None:
        return None
    weight, activation = _part(wise.get("weight")), _part(wise.get("activation"))
    if weight == Part() and activation == Part():
        return None
    return Entry(dotted(place), document.line(place), weight, activation)


def _part(said: Section | None) -> Part:
    if said is None:
        return Part()
    keys = ("granularity", "scheme", "dtype", "algorithm")
    return Part(**{key: said.get(key, default=()) for key in keys})


def _notes_on(entry: Entry, whole: Entry) -> Iterator[str]:
    """What is done otherwise than `entry` says; `whole` has what it leaves to a weaker one too."""
    where = f"line {entry.line}: {entry.path}"
    weight, activation = entry.weight, entry.activation
    if "kl" in weight.algorithm and whole.weight.granularity != ("per_tensor",):
        yield (
            f"{where}.weight.algorithm: kl chooses one range for a whole weight; with a scale for "
            "each channel the range is from the least to the greatest value"
        )
    for part, said in (("weight", weight), ("activation", activation)):
        if "bf16" in said.dtype:
            yield (
                f"{where}.{part}.dtype: Octavo has no bfloat16 kernels: bf16 stays float32 (fp16 "
                "for weights of half the size)"
            )
    if "int8" in activation.dtype:
        yield f"{where}.activation.dtype: activations are uint8 (with a zero point), never int8"
    if "fp16" in activation.dtype:
        yield f"{where}.activation.dtype: activations stay float32 where the file says fp16"
    if "sym" in activation.scheme:
        yield (
            f"{where}.activation.scheme: activations keep a zero point (asym), which is never less "
            "accurate than sym"
        )
    if "per_tensor" in activation.granularity:
        yield (
            f"{where}.activation.granularity: one scale for a whole activation, as the file says; "
            "leave it out for one a row, which is more accurate"
        )
    if activation.dtype[:1] == ("fp32",) and whole.weight.dtype[:1] not in _FLOATS:
        yield (
            f"{where}.activation.dtype: weights are stored small and activations stay float; say "
            "fp32 for weight.dtype too to leave a layer alone"
        )
