"""The words of compressed-tensors in config.json: which of its schemes Octavo's layers compute.

    int8 weights of linear layers, a scale for each output channel or for all
    int8 activations, `dynamic: true`, `strategy: token`

Whatever else such a folder may say is refused by the name of its field.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from octavo.errors import ModelError

NAME = "compressed-tensors"
INTEGERS = "int-quantized"
"""The format in which a weight is a tensor of int8."""

_FORMATS = (INTEGERS, "naive-quantized")
_ADVICE = "quantize the float checkpoint with OctavoConfig()"
_ARGUMENTS: Mapping[str, Any] = {"num_bits": 8, "type": "int", "group_size": None}


@dataclass(frozen=True)
class CompressedScheme:
    """How the layers of one group are held. `targets` are types of modules, names, or `re:` and a
    regular expression of names."""

    targets: tuple[str, ...]
    symmetric: bool
    per_channel: bool

    def speaks_of(self, name: str, kind: str) -> bool:
        """Whether a module is one of its targets."""
        return any(_matches(target, name, kind) for target in self.targets)


@dataclass(frozen=True)
class CompressedConfig:
    """The `quantization_config` of such a folder, as far as Octavo reads it."""

    groups: tuple[CompressedScheme, ...]
    ignore: tuple[str, ...]

    def scheme(self, name: str, kind: str) -> CompressedScheme | None:
        """How the module is held; None where it is float."""
        if any(_matches(pattern, name, kind) for pattern in self.ignore):
            return None
        return next((group for group in self.groups if group.speaks_of(name, kind)), None)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CompressedConfig:
        """Reads config.json's entry. Raises ModelError, which names the field that differs."""
        formats = {data.get("format"), *(g.get("format") for g in _groups(data).values())} - {None}
        for found in sorted(map(str, formats)):
            if found not in _FORMATS:
                raise _refused("format", found, f"Octavo reads {' and '.join(_FORMATS)}")
        for key in ("kv_cache_scheme", "sparsity_config", "transform_config"):
            if data.get(key):
                raise _refused(key, data[key], "Octavo reads none")
        groups = tuple(_scheme(name, group) for name, group in _groups(data).items())
        if not groups:
            raise _refused("config_groups", data.get("config_groups"), "needs one at least")
        return cls(groups, tuple(data.get("ignore") or ()))


def written(ignore: Collection[str], *, symmetric: bool) -> dict[str, Any]:
    """config.json's entry for a model all of whose linear layers but `ignore` are int8."""
    weights = _arguments(symmetric, "channel", dynamic=False)
    group = {
        "targets": ["Linear"],
        "weights": weights,
        "input_activations": _arguments(True, "token", dynamic=True),
        "output_activations": None,
        "format": INTEGERS,
    }
    return {
        "quant_method": NAME,
        "format": INTEGERS,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": sorted(ignore),
        "kv_cache_scheme": None,
        "global_compression_ratio": None,
    }


def _arguments(symmetric: bool, strategy: str, *, dynamic: bool) -> dict[str, Any]:
    return {**_ARGUMENTS, "symmetric": symmetric, "strategy": strategy, "dynamic": dynamic}


def _groups(data: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    groups = data.get("config_groups")
    fits = isinstance(groups, Mapping) and all(isinstance(g, Mapping) for g in groups.values())
    if not fits:
        raise _refused("config_groups", groups, "needs a mapping of mappings")
    return groups  # type: ignore[return-value]


def _scheme(name: str, group: Mapping[str, Any]) -> CompressedScheme:
    where = f"config_groups.{name}"
    weights = _checked(f"{where}.weights", group.get("weights"), ("channel", "tensor"), False)
    _checked(f"{where}.input_activations", group.get("input_activations"), ("token",), True)
    outputs = group.get("output_activations")
    if outputs:
        raise _refused(f"{where}.output_activations", outputs, "Octavo has none")
    targets = group.get("targets") or ()
    return CompressedScheme(
        tuple(targets), bool(weights["symmetric"]), weights["strategy"] == "channel"
    )


def _checked(where: str, given: Any, strategies: Iterable[str], dynamic: bool) -> Mapping[str, Any]:
    """The arguments of weights or activations; `strategy` and `symmetric` filled in."""
    if not isinstance(given, Mapping):
        raise _refused(where, given, "Octavo's layers quantize both weights and activations")
    for key, value in {**_ARGUMENTS, "dynamic": dynamic}.items():
        found = given.get(key, False if key == "dynamic" else value)
        if found != value and not (key == "group_size" and found == -1):
            raise _refused(f"{where}.{key}", found, f"Octavo reads {value!r}")
    strategy = given.get("strategy", "tensor")
    if strategy not in strategies:
        raise _refused(f"{where}.strategy", strategy, f"Octavo reads {' and '.join(strategies)}")
    if given.get("actorder"):
        raise _refused(f"{where}.actorder", given["actorder"], "Octavo reads none")
    return {"strategy": strategy, "symmetric": given.get("symmetric", True)}


def _refused(where: str, found: Any, allowed: str) -> ModelError:
    return ModelError(f"{NAME}: {where} is {found!r}; {allowed}: {_ADVICE}")


def _matches(target: str, name: str, kind: str) -> bool:
    if target.startswith("re:"):
        return re.match(target.removeprefix("re:"), name) is not None
    return target in (name, kind)
