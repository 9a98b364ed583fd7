"""Recipes: ordered rules that give each layer its scheme."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from fnmatch import fnmatchcase
from reprlib import repr as short
from typing import Any

from octavo.core import versions
from octavo.core.attention_type import AttentionType
from octavo.core.layer import Kind, Layer
from octavo.errors import RecipeError, did_you_mean
from octavo.recipe import patterns
from octavo.recipe.bit_budget import Mix
from octavo.recipe.reading import LocatedRecipeError, expect, refuse_unknown, within
from octavo.recipe.scheme import FLOAT, SCHEMES, Scheme


class Origin(Enum):
    """Who says how a layer is held."""

    DEFAULT = "default"  # the recipe, of all layers that no rule names
    MIX = "mix"  # its mix, of those that no rule names and that it is for
    PRESET = "preset"  # a rule of a preset
    USER = "user"  # a rule that somebody wrote
    SELECTION = "selection"  # the layers that a call is for
    LIMIT = "limit"  # the layer itself, or what the target can hold


@dataclass(frozen=True)
class Rule:
    """The layers it matches get `scheme`; `reason` is shown where that is FLOAT.

    Exactly one of: `name` (a glob over layer names, case-sensitive), `regex` (full match),
    `kind`, `op` (the framework's operator name). `origin` says whose rule it is, `file` and `line`
    where YAML says it; rules that differ in these alone are equal.
    """

    scheme: Scheme
    name: str | None = None
    regex: str | None = None
    kind: Kind | None = None
    op: str | None = None
    reason: str = ""
    line: int | None = field(default=None, compare=False)
    file: str = field(default="", compare=False)
    origin: Origin = field(default=Origin.USER, compare=False)

    def __post_init__(self) -> None:
        given = [k for k in ("name", "regex", "kind", "op") if getattr(self, k) is not None]
        if len(given) != 1:
            raise RecipeError(
                f"a rule matches by exactly one of name, regex, kind, op; got {given or 'none'}"
            )
        if self.regex is not None:
            try:
                patterns.check(self.regex)
            except ValueError as error:
                raise LocatedRecipeError(
                    f"regex {self.regex!r}: {error}; mend the regular expression", ("regex",)
                ) from None

    def matches(self, layer: Layer) -> bool:
        """Tell whether the rule speaks of `layer`."""
        if self.name is not None:
            return layer.name == self.name or fnmatchcase(layer.name, self.name)
        if self.regex is not None:
            return patterns.matches(self.regex, layer.name)
        if self.kind is not None:
            return layer.kind is self.kind
        return layer.op == self.op

    def describe(self) -> str:
        """Return what the rule matches, as `name '/encoder/*'`, for messages."""
        for key in ("name", "regex", "op"):
            if getattr(self, key) is not None:
                return f"{key} {getattr(self, key)!r}"
        assert self.kind is not None
        return f"kind {self.kind.value!r}"

    @property
    def place(self) -> str:
        """Return the place, as `mine.yaml:3: `, with which a message begins.

        The text is empty for a rule made in Python.
        """
        if self.line is None:
            return ""
        return f"{self.file}:{self.line}: " if self.file else f"line {self.line}: "

    def to_dict(self) -> dict[str, Any]:
        """Plain data for YAML and JSON."""
        data: dict[str, Any] = {}
        for key in ("name", "regex", "op"):
            if getattr(self, key) is not None:
                data[key] = getattr(self, key)
        if self.kind is not None:
            data["kind"] = self.kind.value
        data["scheme"] = self.scheme.to_dict()
        if self.reason:
            data["reason"] = self.reason
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Rule:
        """Invert `to_dict`. Unknown keys and values and wrong types raise RecipeError."""
        refuse_unknown(data, ("name", "regex", "kind", "op", "scheme", "reason"), "a rule")
        if "scheme" not in data:
            raise RecipeError("a rule needs `scheme`: float, a preset's name, or a mapping")
        values: dict[str, Any] = {}
        for key, value in data.items():
            if key == "scheme":
                with within(key):
                    values[key] = Scheme.from_dict(value)
            else:
                values[key] = expect(value, str, key)
        if "kind" in values:
            with within("kind"):
                values["kind"] = parse_kind(values["kind"])
        rule = cls(**values)
        return replace(rule, origin=Origin.PRESET) if rule in PRESET_RULES else rule


@dataclass(frozen=True)
class Recipe:
    """What to do with each layer: the first rule that matches decides, else `default`.

    `max_error` bounds the difference between the float and the quantized model's outputs that
    verification accepts (see `octavo.core.metrics`: half the squared relative distance, about
    `1 - cosine`). `attention` is what attention may multiply in, where it runs in Octavo's kernels.
    With a `mix` the layers that the default is for get more or fewer bits, for a size.
    """

    name: str
    default: Scheme
    rules: tuple[Rule, ...] = ()
    max_error: float = 0.1
    version: int = versions.RECIPE
    attention: AttentionType = AttentionType.FLOAT32
    mix: Mix | None = None

    def __post_init__(self) -> None:
        _check_version(self.version)
        if not 0 < self.max_error < math.inf:
            raise LocatedRecipeError(
                f"max_error {self.max_error} must be above 0 and finite", ("max_error",)
            )
        w = self.default.weight
        if self.mix is not None and (w is None or not w.qtype.is_integer):
            raise LocatedRecipeError(
                f"a mix chooses bits where `default` has integers, and this one has "
                f"{self.default.describe()}: leave `mix` out, or say the layers' scheme by rules",
                ("default",),
            )

    def rule_for(self, layer: Layer) -> Rule | None:
        """Return the first rule that matches `layer`, or None where the default applies."""
        return next((rule for rule in self.rules if rule.matches(layer)), None)

    def with_rules_first(self, *rules: Rule) -> Recipe:
        """Return a copy in which `rules` come before the others."""
        return replace(self, rules=(*rules, *self.rules))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for YAML and JSON; `attention` float32 and no `mix` are left out."""
        other = self.attention is not AttentionType.FLOAT32
        return {
            "version": self.version,
            "name": self.name,
            "max_error": self.max_error,
            **({"attention": self.attention.value} if other else {}),
            **({"mix": self.mix.to_dict()} if self.mix else {}),
            "default": self.default.to_dict(),
            "rules": [rule.to_dict() for rule in self.rules],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Recipe:
        """Invert `to_dict`; `base: PRESET` fills in what is left out.

        With a base, the data's rules come before the preset's. Unknown keys and values and wrong
        types raise RecipeError.
        """
        if isinstance(data, Mapping) and "version" in data:  # another version has other keys
            _check_version(expect(data["version"], int, "version"))
        known = ("version", "name", "base", "max_error", "attention", "mix", "default", "rules")
        refuse_unknown(data, known, "a recipe")
        if "base" not in data and "default" not in data:
            raise RecipeError(
                "a recipe needs `default` (a scheme) or `base` (a preset's name)."
                + did_you_mean("", PRESETS)
            )
        values: dict[str, Any] = {"name": "custom"}
        if "base" in data:
            name = expect(data["base"], str, "base")
            with within("base"):
                values = vars(preset(name)).copy()
        if "name" in data:
            values["name"] = expect(data["name"], str, "name")
        if "max_error" in data:
            values["max_error"] = expect(data["max_error"], float, "max_error")
        if "attention" in data:
            values["attention"] = _attention(expect(data["attention"], str, "attention"))
        if "mix" in data:
            with within("mix"):
                values["mix"] = Mix.from_dict(data["mix"])
        if "default" in data:
            with within("default"):
                values["default"] = Scheme.from_dict(data["default"])
        values["rules"] = (*_rules_from_list(data.get("rules")), *values.get("rules", ()))
        return cls(**values)


def _attention(text: str) -> AttentionType:
    known = [choice.value for choice in AttentionType]
    if text not in known:
        raise LocatedRecipeError(
            f"unknown attention {text!r}.{did_you_mean(text, known)}", ("attention",)
        )
    return AttentionType(text)


def _rules_from_list(data: object) -> list[Rule]:
    if data is None:  # `rules:` and nothing after it
        return []
    if not isinstance(data, list):
        raise LocatedRecipeError(f"`rules` is a list of mappings; got {short(data)}", ("rules",))
    rules = []
    for index, rule in enumerate(data):
        with within("rules", index):
            rules.append(Rule.from_dict(rule))
    return rules


def _check_version(version: int) -> None:
    if version != versions.RECIPE:
        raise LocatedRecipeError(
            f"recipe version {version} is not {versions.RECIPE}, the one known here; write "
            f"`version: {versions.RECIPE}`, or install the Octavo that wrote it",
            ("version",),
        )


def parse_kind(text: str) -> Kind:
    """Return the kind called `text`. Raises RecipeError, which names the known ones."""
    known = [k.value for k in Kind]
    if text not in known:
        raise RecipeError(f"unknown kind {text!r}.{did_you_mean(text, known)}")
    return Kind(text)


CONV_REASON = (
    "float by default: ONNX Runtime's integer convolution is no faster than its float one; ask for "
    "it with --ops Conv"
)
MATMUL_REASON = "a product of two activations: it has no weights to make smaller"

_CONV = Rule(FLOAT, kind=Kind.CONV, reason=CONV_REASON, origin=Origin.PRESET)
_MATMUL = Rule(FLOAT, kind=Kind.ACTIVATION_MATMUL, reason=MATMUL_REASON, origin=Origin.PRESET)
PRESET_RULES = (_CONV, _MATMUL)

PRESETS = {
    name: Recipe(name, SCHEMES[name], rules, max_error)
    for name, rules, max_error in (
        ("int8", (_CONV, _MATMUL), 0.1),
        # ONNX Runtime's quantize_dynamic converts convolutions too, so that this one does.
        ("int8-per-tensor", (_MATMUL,), 0.3),
        ("int8-accurate", (_CONV, _MATMUL), 0.05),
        ("int8-block", (_CONV, _MATMUL), 0.05),
        ("int4", (_CONV, _MATMUL), 0.2),
        ("int4-128", (_CONV, _MATMUL), 0.3),
        ("float16", (_MATMUL,), 0.001),
    )
}
PRESETS["int4-mixed"] = replace(PRESETS["int4"], name="int4-mixed", mix=Mix())
"""The recipes that have a name, by it."""


def preset(name: str) -> Recipe:
    """Return the recipe called `name`. Raises RecipeError, which lists those that exist."""
    try:
        return PRESETS[name]
    except KeyError:
        raise RecipeError(f"unknown preset {name!r}.{did_you_mean(name, PRESETS)}") from None
