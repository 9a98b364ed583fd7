"""Compares what a file of another quantizer became with the float model that the file stands for.

    file -> reference    the same weights as float numbers, activations in float
         -> converted    the same integers, activations per row

The reference is what both approximate. The converted model may be as far from it as recipe int8
allows. Where the file is further away itself, its layers and the converted ones are compared alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from octavo.errors import OctavoError, VerificationError
from octavo.graph.analysis.walk import graphs_of, opset_of
from octavo.onnx.check.conversion import ADVICE, MAX_ERROR, open_checked
from octavo.onnx.check.layer_effects import LayerEffects
from octavo.onnx.check.model_pair import MOST_OPENED_BYTES, ModelPair
from octavo.onnx.check.verify import made_up_feeds, verify
from octavo.onnx.constants import Constants
from octavo.onnx.from_quantized import restore
from octavo.onnx.from_quantized.context import RestoringContext
from octavo.onnx.inputs import Feed
from octavo.onnx.read import normalize
from octavo.onnx.read.load import Source, load
from octavo.onnx.read.tensor_store import TensorStore
from octavo.onnx.write.save import save
from octavo.results.report import LayerOutcome, Verification

BY_LAYERS = "layer by layer, as the file itself is far from the float numbers of its weights"
ADVISED = f" {ADVICE}"
GROWTH, GROWTH_OF_BLOCKS = 4, 8
"""Of weights from bytes to float32, and from blocks, whose integers may have 4 bits."""
IN_BLOCKS = frozenset(("MatMulNBits", "GatherBlockQuantized"))
MOST_OF_A_LAYER = 0.1
"""Error of one layer of the file, fed the reference's values. A range 100 times the root mean
square, in 255 steps, gives 0.01; a scale that is off by a factor of two more than this."""


@dataclass(frozen=True)
class Restored:
    """What was compared, with the float model or (not `against_weights`) with the file.

    `error_before` is that of the file as it was, None where nobody knows.
    """

    verification: Verification
    error_before: float | None = None
    against_weights: bool = False


@dataclass(frozen=True)
class _Folder:
    """Where the reference lies."""

    out: Path

    @property
    def model(self) -> Path:
        """The model file."""
        return self.out / "reference.onnx"

    @property
    def data(self) -> Path:
        """Its weights."""
        return self.out / "reference.data"


def is_affordable(source: Source) -> bool:
    """Tell whether the reference may be written and opened beside the file."""
    # Of the file as it was: the model of `source` was converted.
    nodes = (node for graph in graphs_of(load(source.origin).model) for node in graph)
    blocks = any(n.op_type in IN_BLOCKS or "block_size" in n.attributes for n in nodes)
    return (GROWTH_OF_BLOCKS if blocks else GROWTH) * source.bytes <= MOST_OPENED_BYTES


def check_restored(
    file: Source,
    converted: Path,
    feeds: list[Feed] | None,
    outcomes: Sequence[LayerOutcome],
) -> Restored:
    """Compare `converted` with the float reference that `file` stands for.

    Raises VerificationError where `converted` does not load or is too far from the reference, or
    where a layer of the file is not what the reference has in its place.
    """
    assert file.path is not None
    open_checked(file.path, "source")
    with reference_of(file) as reference:
        sample = feeds or list(islice(made_up_feeds(reference), 1))
        if not sample:
            return _near(verify(reference, converted, None, MAX_ERROR, outcomes), None)
        was = verify(reference, file.path, sample, None, outcomes)
        if was.error is None or was.error > MAX_ERROR:
            layers = _Layers(reference, sample[0], outcomes)
            if layers.worst(file.path, "file", MOST_OF_A_LAYER) is not None:
                worst = layers.worst(converted, "converted model", MAX_ERROR)
                found = verify(reference, converted, sample[:1], None, outcomes, advice=ADVISED)
                kind = "made up" if feeds is None else "given"
                return _near(_by_layers(found, worst, kind), was.error)
        bound = max(MAX_ERROR, was.error or 0.0)
        found = verify(reference, converted, feeds, bound, outcomes, advice=ADVISED)
        return _near(found, was.error)


def _near(found: Verification, before: float | None) -> Restored:
    return Restored(found, before, against_weights=True)


def _by_layers(found: Verification, worst: float | None, kind: str) -> Verification:
    """Return what the layers showed; the outputs were only checked for non-finite values."""
    return replace(
        found,
        status="compared",
        inputs=kind,
        error=worst,
        cosine_error=None,
        max_error=MAX_ERROR,
        detail=BY_LAYERS,
    )


# docs/notes/checking.md: "Other quantizers' files are compared with what they stand for"
@contextmanager
def reference_of(file: Source) -> Iterator[Source]:
    """Yield the float model that `file` stands for, written in a temporary folder."""
    with TemporaryDirectory(prefix="octavo-reference-") as name:
        folder = _Folder(Path(name))
        source = load(file.origin)
        normalize.normalize(source.model, source.label, normalize.FIRST_WITH_QUANTIZE)
        restore(RestoringContext(source.model, Constants(opset_of(source.model))))
        tensors = TensorStore(folder.data)
        try:
            save(source.model, folder, tensors, {})
        finally:
            tensors.close()
        yield load(folder.model)


# docs/notes/checking.md: "A file far from its own weights is compared by layers"
class _Layers:
    """Compares the layers of a quantized model, each fed the reference's values."""

    def __init__(self, reference: Source, feed: Feed, outcomes: Sequence[LayerOutcome]) -> None:
        self._reference, self._feed, self._outcomes = reference, feed, outcomes

    def worst(self, quantized: Path, what: str, most: float) -> float | None:
        """Return the worst layer's error; None where the layers cannot be compared.

        Raises VerificationError for a layer that is too far.
        """
        pair = ModelPair(
            self._reference, quantized, [o.layer.name for o in self._outcomes if o.quantized]
        )
        errors: dict[str, float] = {}
        if pair.is_affordable:
            with suppress(OctavoError):  # then nobody can look into the models
                effects = LayerEffects(pair, self._reference, self._outcomes)
                errors = effects.own_errors(self._feed)
        worst = max(errors, key=lambda name: errors[name], default=None)
        if worst is not None and errors[worst] > most:
            raise VerificationError(
                f"layer {worst!r} of the {what} is not what its integers stand for: error "
                f"{errors[worst]:.4g} with inputs of its own, above {most:g}. {ADVICE}",
                worst,
            )
        return None if worst is None else errors[worst]
