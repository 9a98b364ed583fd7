"""`OctavoConfig`: what `from_pretrained` is told, and what config.json then says of the weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from enum import Enum
from pathlib import Path
from typing import Any, TypedDict

import octavo
from octavo.core import versions
from octavo.core.data import fitted
from octavo.core.packages import pip_install
from octavo.errors import ModelError, OctavoError, OptionError, did_you_mean
from octavo.recipe import PRESETS, Recipe
from octavo.recipe.block_options import refuse_block_options
from octavo.recipe.yaml_files import recipe_of
from octavo.torch.files.manifest import version_of
from octavo.torch.hub.compressed_scheme import NAME, CompressedConfig
from octavo.torch.hub.gptq_scheme import GptqConfig

try:
    from transformers.utils.quantization_config import QuantizationConfigMixin
except ImportError as error:
    raise ImportError(
        f"octavo.torch.hub needs transformers of version 5: {pip_install('transformers')}"
    ) from error

METHOD = "octavo"
"""What config.json calls these weights: its `quant_method`."""


StoredGroup = TypedDict("StoredGroup", {"class": str, "config": dict[str, Any], "names": list[str]})
"""Layers of one class and configuration, as config.json has them."""

_STORED = ("quant_method", "version", "octavo_version", "layers", "shared")
"""What a saved folder's config.json says besides what a user does."""


class WeightLayout(Enum):
    """How a folder holds quantized weights."""

    OCTAVO = "octavo"
    """As Octavo's kernels read them: any recipe, mapped when it is loaded."""

    COMPRESSED_TENSORS = NAME
    """As vLLM and llm-compressor read them: linear layers of the recipes int8 and int4."""

    @classmethod
    def parse(cls, text: object) -> WeightLayout:
        """Return the layout called `text`. Raises OptionError, which names the known ones."""
        known = [layout.value for layout in cls]
        if text not in known:
            raise OptionError(f"format: unknown format {text!r}.{did_you_mean(str(text), known)}")
        return cls(text)


class OctavoConfig(QuantizationConfigMixin):
    """Quantizes a checkpoint while `from_pretrained` loads it.

        AutoModel.from_pretrained(path, quantization_config=OctavoConfig(skip=["lm_head"]))

    - `recipe`: a preset's name ("int8", "int8-accurate", "float16", ...), a YAML file, or an
      `octavo.Recipe`, as in `octavo.torch.quantize_dynamic`.
    - `skip`: names of layers that stay float, globs over names, or names of modules around layers.
    - `format`: how `save_pretrained` writes the weights: "octavo", or "compressed-tensors", which
      vLLM reads.

    `save_pretrained` writes all of it to config.json, and what the layers are, never over float
    weights, and as ever no tokenizer: `tokenizer.save_pretrained` writes that. Nothing needs be
    given when such a folder is loaded. Raises RecipeError for an unknown recipe, OptionError for
    an unknown field, format or a `skip` that is no list of names, and ModelError for what a newer
    Octavo wrote.
    """

    def __init__(
        self,
        recipe: str | Path | Recipe | Mapping[str, Any] = "int8",
        skip: Iterable[str] = (),
        format: str = WeightLayout.OCTAVO.value,  # noqa: A002  # as compressed-tensors calls it
        **stored: Any,
    ) -> None:
        _refuse_newer(stored)
        unknown = next((key for key in stored if key not in _STORED), None)
        if unknown is not None:
            refuse_block_options(stored)
            known = ("recipe", "skip", "format")
            raise OptionError(
                f"quantization_config: unknown field {unknown!r}.{did_you_mean(unknown, known)}"
            )
        self.quant_method: Any = METHOD
        self.recipe = Recipe.from_dict(recipe) if isinstance(recipe, Mapping) else recipe_of(recipe)
        self.skip = _names(skip)
        self.layout = WeightLayout.parse(format)
        self.layers: Sequence[Mapping[str, Any]] | None = _said(
            Sequence[StoredGroup] | None, stored.get("layers"), "layers"
        )
        self.shared: Mapping[str, str] = _said(dict[str, str], stored.get("shared", {}), "shared")
        self.foreign: CompressedConfig | GptqConfig | None = None
        self._written: Mapping[str, Any] | None = None

    @classmethod
    def from_dict(cls, config_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """Read the config as `transformers` reads config.json.

        Raises ModelError, which names the field.
        """
        try:
            return super().from_dict(config_dict, *args, **kwargs)
        except ModelError:
            raise
        except OctavoError as error:  # of an option, which nobody gave
            raise ModelError(f"config.json, quantization_config: {error}") from None

    def refuse_limits(self, name: str, by: str) -> None:
        """Raise OptionError where the recipe's mix limits the size of integers that are to stay.

        `name` is the checkpoint that has them, `by` who made them.
        """
        if self.recipe.mix is not None and self.recipe.mix.is_limited:
            raise limits_refused(name, by)

    def for_foreign(self, found: CompressedConfig | GptqConfig) -> OctavoConfig:
        """Return a copy for a folder that others quantized and that says how layers are held."""
        self.refuse_limits("the checkpoint", found.method)
        made = copy(self)
        made.foreign = found
        return made

    def as_written(self, data: Mapping[str, Any]) -> OctavoConfig:
        """Return a copy that config.json gets as `data`: that of another method's folder."""
        made = copy(self)
        made._written = data
        return made

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as config.json holds it."""
        if self._written is not None:
            return dict(self._written)
        preset = PRESETS.get(self.recipe.name)
        found: dict[str, Any] = {
            "quant_method": METHOD,
            "version": version_of(self.layers or (), versions.HUB_INT8_FOLDER, versions.HUB_FOLDER),
            "octavo_version": octavo.__version__,
            "recipe": self.recipe.name if self.recipe == preset else self.recipe.to_dict(),
            "skip": list(self.skip),
            "format": self.layout.value,
        }
        if self.layers is not None:
            found["layers"] = [dict(group) for group in self.layers]
        if self.shared:
            found["shared"] = dict(self.shared)
        return found


def limits_refused(name: str, by: str) -> OptionError:
    """Build the error about --bits and --size where weights keep integers that `by` gave them."""
    return OptionError(
        f"--bits and --size (`mix` in a recipe) are for float models, and {name} keeps the "
        f"integers of {by}: leave them out, or quantize the float model that it was made of"
    )


def _said(hint: Any, value: Any, name: str) -> Any:
    try:
        return fitted(hint, value, name)
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"config.json is damaged: quantization_config.{error}; copy the folder again, whole"
        ) from None


def _refuse_newer(stored: Mapping[str, Any]) -> None:
    version = stored.get("version", versions.HUB_FOLDER)
    if type(version) is not int or version < 1:
        raise ModelError(
            f"quantization_config: version {version!r} is no version; needs {versions.HUB_FOLDER}"
        )
    if version > versions.HUB_FOLDER:
        raise ModelError(
            f"quantization_config: version {version}, written by Octavo "
            f"{stored.get('octavo_version', '?')}; this is Octavo {octavo.__version__}, which "
            f"reads up to {versions.HUB_FOLDER}: install the one that wrote it"
        )


def _names(skip: Iterable[str]) -> tuple[str, ...]:
    listed = isinstance(skip, Iterable) and not isinstance(skip, str)
    names = tuple(skip) if listed else ()
    if not listed or not all(isinstance(name, str) for name in names):
        raise OptionError(f"skip: needs a list of layers' names, not {skip!r}")
    return names
