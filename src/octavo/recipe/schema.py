"""Recipes: ordered rules that give each layer its scheme."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from octavo.errors import RecipeError, did_you_mean
from octavo.recipe.layer import Kind, Layer
from octavo.recipe.scheme import Scheme, _refuse_unknown

VERSION = 1


@dataclass(frozen=True)
class Rule:
    """The layers it matches get `scheme`; `reason` is shown where that is FLOAT.

    Exactly one of: `name` (a glob over layer names, case-sensitive), `regex` (full match),
    `kind`, `op` (the framework's operator name). `line` is where a YAML file says it.
    """

    scheme: Scheme
    name: str | None = None
    regex: str | None = None
    kind: Kind | None = None
    op: str | None = None
    reason: str = ""
    line: int | None = None

    def __post_init__(self) -> None:
        given = [k for k in ("name", "regex", "kind", "op") if getattr(self, k) is not None]
        if len(given) != 1:
            raise RecipeError(
                f"a rule matches by exactly one of name, regex, kind, op; got {given or 'none'}"
            )
        if self.regex is not None:
            try:
                re.compile(self.regex)
            except re.error as error:
                raise RecipeError(f"regex {self.regex!r}: {error}") from None

    def matches(self, layer: Layer) -> bool:
        """Whether the rule speaks of `layer`."""
        if self.name is not None:
            return layer.name == self.name or fnmatchcase(layer.name, self.name)
        if self.regex is not None:
            return re.fullmatch(self.regex, layer.name) is not None
        if self.kind is not None:
            return layer.kind is self.kind
        return layer.op == self.op

    def describe(self) -> str:
        """`name '/encoder/*'`, for messages."""
        for key in ("name", "regex", "op"):
            if getattr(self, key) is not None:
                return f"{key} {getattr(self, key)!r}"
        assert self.kind is not None
        return f"kind {self.kind.value!r}"

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
        """The inverse of `to_dict`."""
        known = ("name", "regex", "kind", "op", "scheme", "reason")
        _refuse_unknown(data, known, "a rule")
        if "scheme" not in data:
            raise RecipeError("a rule needs `scheme`: float, a preset's name, or a mapping")
        values = {k: str(data[k]) for k in ("name", "regex", "op", "reason") if k in data}
        kind = data.get("kind")
        return cls(
            Scheme.from_dict(data["scheme"]),
            kind=None if kind is None else parse_kind(str(kind)),
            **values,
        )


@dataclass(frozen=True)
class Recipe:
    """What to do with each layer: the first rule that matches decides, else `default`.

    `max_error` bounds the difference between the float and the quantized model's outputs that
    verification accepts (see `octavo.core.metrics`: half the squared relative distance, about
    `1 - cosine`).
    """

    name: str
    default: Scheme
    rules: tuple[Rule, ...] = ()
    max_error: float = 0.1
    version: int = VERSION

    def __post_init__(self) -> None:
        if self.version != VERSION:
            raise RecipeError(f"recipe version {self.version} is not {VERSION}, the one known here")
        if not self.max_error > 0:
            raise RecipeError(f"max_error {self.max_error} must be above 0")

    def rule_for(self, layer: Layer) -> Rule | None:
        """The first rule that matches `layer`, or None where the default applies."""
        return next((rule for rule in self.rules if rule.matches(layer)), None)

    def with_rules_first(self, *rules: Rule) -> Recipe:
        """A copy in which `rules` come before the others."""
        return replace(self, rules=(*rules, *self.rules))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for YAML and JSON."""
        return {
            "version": self.version,
            "name": self.name,
            "max_error": self.max_error,
            "default": self.default.to_dict(),
            "rules": [rule.to_dict() for rule in self.rules],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Recipe:
        """The inverse of `to_dict`; `base: PRESET` fills in what is left out.

        With a base, the file's rules come before the preset's.
        """
        from octavo.recipe.presets import preset

        known = ("version", "name", "base", "max_error", "default", "rules")
        _refuse_unknown(data, known, "a recipe")
        base = preset(str(data["base"])) if "base" in data else None
        if base is None and "default" not in data:
            raise RecipeError("a recipe needs `default` (a scheme) or `base` (a preset's name)")
        default = base.default if base else None
        if "default" in data:
            default = Scheme.from_dict(data["default"])
        assert default is not None
        raw_rules = data.get("rules") or []
        if not isinstance(raw_rules, list):
            raise RecipeError(f"`rules` is a list of mappings; got {raw_rules!r}")
        rules = tuple(Rule.from_dict(rule) for rule in raw_rules)
        return cls(
            name=str(data.get("name", base.name if base else "custom")),
            default=default,
            rules=rules + (base.rules if base else ()),
            max_error=float(data.get("max_error", base.max_error if base else 0.1)),
            version=int(data.get("version", VERSION)),
        )


def parse_kind(text: str) -> Kind:
    """The kind called `text`; RecipeError names the known ones."""
    known = [k.value for k in Kind]
    if text not in known:
        raise RecipeError(f"unknown kind {text!r}.{did_you_mean(text, known)}")
    return Kind(text)
