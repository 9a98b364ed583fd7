"""Compares what a file of another quantizer became with the float model that the file stands for.

    file -> reference    the same weights as float numbers, activations in float
         -> converted    the same integers, activations per row

The reference is what both approximate. The converted model may be as far from it as recipe int8
allows, or as far as the file is: whoever uses the file lives with that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from octavo.errors import OctavoError, VerificationError
from octavo.graph.analysis.walk import opset_of
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
from octavo.onnx.write.save import save
from octavo.onnx.write.store import TensorStore
from octavo.recipe import LayerOutcome, Verification

GROWTH = 4
"""Of weights from bytes to float32."""
MOST_OF_A_LAYER = 0.2
"""Error of one layer of the file, fed the reference's values. A range 100 times the root mean
square, in 255 steps, gives 0.013; a scale that is off by a factor of two 0.25 or 1."""


@dataclass(frozen=True)
class Restored:
    """What was compared; `error_before` is that of the file as it was, None where nobody knows."""

    verification: Verification
    error_before: float | None


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
    """Whether the reference may be written and opened beside the file."""
    return GROWTH * source.bytes <= MOST_OPENED_BYTES


def check_restored(
    file: Source,
    converted: Path,
    feeds: list[Feed] | None,
    outcomes: Sequence[LayerOutcome],
) -> Restored:
    """Raises VerificationError where `converted` does not load or is too far from the reference.

    Also where a layer of the file is not what the reference has in its place.
    """
    assert file.path is not None
    open_checked(file.path, "source")
    with reference_of(file) as reference:
        was = verify(reference, file.path, feeds, None, outcomes)
        if was.error is not None and was.error > MAX_ERROR:
            _compare_layers(reference, file.path, feeds, outcomes)
        bound = max(MAX_ERROR, was.error or 0.0)
        found = verify(reference, converted, feeds, bound, outcomes, advice=f" {ADVICE}")
    return Restored(found, was.error)


# docs/notes/checking.md: "Other quantizers' files are compared with what they stand for"
@contextmanager
def reference_of(file: Source) -> Iterator[Source]:
    """The float model that `file` stands for, written in a temporary folder."""
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


# docs/notes/checking.md: "A file far from its own weights is looked into"
def _compare_layers(
    reference: Source, file: Path, feeds: list[Feed] | None, outcomes: Sequence[LayerOutcome]
) -> None:
    """Raises VerificationError where a layer of the file, fed the reference's values, gives others.

    One scale for a whole activation may cost a deep model its output, and no layer that much.
    """
    names = [o.layer.name for o in outcomes if o.quantized]
    pair = ModelPair(reference, file, names)
    feed = next(iter(feeds or made_up_feeds(reference)), None)
    errors: dict[str, float] = {}
    if feed is not None and pair.is_affordable:
        with suppress(OctavoError):  # then nobody can look into the models
            errors = LayerEffects(pair, reference, outcomes).own_errors(feed)
    worst = max(errors, key=lambda name: errors[name], default=None)
    if worst is not None and errors[worst] > MOST_OF_A_LAYER:
        raise VerificationError(
            f"layer {worst!r} of the file is not what its integers stand for: error "
            f"{errors[worst]:.4g} with inputs of its own, above {MOST_OF_A_LAYER:g}. {ADVICE}",
            worst,
        )
