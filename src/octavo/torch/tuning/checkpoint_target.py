"""A checkpoint as tuning sees it: what is written of it is a folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from octavo.recipe import Recipe
from octavo.results.report import Report
from octavo.results.target import Feed
from octavo.torch.tuning.target import TorchTarget, refuse_static


class CheckpointTarget(TorchTarget):
    """A `TorchTarget` of a checkpoint's folder or name, which saves a folder for from_pretrained.

    An output whose name ends in .safetensors is one file for `octavo.torch.load`, as of others.
    """

    output_suffix = ""

    def save(
        self, recipe: Recipe, out: Path, calibration: Sequence[Feed] | None = None
    ) -> Report | None:
        """Write the quantized checkpoint to `out`, and return the report of what is in it."""
        if out.suffix == ".safetensors":
            return super().save(recipe, out, calibration)
        from octavo.torch.hub.quantized_folder import quantize_folder

        refuse_static(calibration)
        made = quantize_folder(self.label, out, recipe=recipe)
        return replace(made, source=self.label)
