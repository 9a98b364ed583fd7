"""The words of compressed-tensors in config.json: which of its schemes Octavo's layers compute.

    int-quantized    int8 weights of linear layers, a scale for each output channel or for all,
                     int8 activations, `dynamic: true`, `strategy: token`
    pack-quantized   weights of 4 or 8 bits, a scale for each group of 32 inputs or a multiple,
                     for each channel or for all; activations float, or as above

Whatever else such a folder may say is refused by the name of its field.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from octavo.core.data import fitted
from octavo.errors import ModelError
from octavo.torch.hub.stored_linears import CompressedLinear, Int8Linear, StoredLinear

NAME = "compressed-tensors"
INTEGERS = "int-quantized"
"""The format in which a weight is a tensor of int8."""
PACKED = "pack-quantized"
"""The format in which words hold several integers each."""

_FORMATS = (INTEGERS, "naive-quantized", PACKED)
_MIXED = "mixed-precision"  # groups say their own
_LARGEST = 1 << 31  # inputs of a group
_ADVICE = "quantize the float checkpoint with OctavoConfig()"
_ARGUMENTS: Mapping[str, Any] = {"num_bits": 8, "type": "int", "group_size": None}
_OF_CACHE = "its kv_cache_scheme is not followed: keys and values stay as the model makes them"
_IN_PLACE = ("weight", "static")  # orders of inputs that are gone when a folder is written


@dataclass(frozen=True)
class CompressedScheme:
    """How the layers of one group are held. `targets` are types of modules, names, or `re:` and a
    regular expression of names."""

    targets: tuple[str, ...]
    stored: StoredLinear

    def speaks_of(self, name: str, kind: str) -> bool:
        """Tell whether a module is one of its targets."""
        return any(_matches(target, name, kind) for target in self.targets)


@dataclass(frozen=True)
class CompressedConfig:
    """The `quantization_config` of such a folder, as far as Octavo reads it."""

    groups: tuple[CompressedScheme, ...]
    ignore: tuple[str, ...]
    method: str = NAME
    notes: tuple[str, ...] = ()

    def stored(self, name: str, kind: str, files: Collection[str] = ()) -> StoredLinear | None:
        """Return how the module is stored; None where it is float.

        `files` name the folder's tensors.
        """
        if any(_matches(pattern, name, kind) for pattern in self.ignore):
            return None
        found = (group.stored for group in self.groups if group.speaks_of(name, kind))
        return next(found, None)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CompressedConfig:
        """Read config.json's entry. Raises ModelError, which names the field that differs."""
        whole = data.get("format")
        formats = [whole, *(g.get("format") for g in _groups(data).values())]
        for found in formats:
            if found not in (None, _MIXED, *_FORMATS):
                raise _refused("format", found, f"Octavo reads {' and '.join(_FORMATS)}")
        for key in ("sparsity_config", "transform_config"):
            if data.get(key):
                raise _refused(key, data[key], "Octavo reads none")
        groups = tuple(_scheme(name, group, whole) for name, group in _groups(data).items())
        if not groups:
            raise _refused("config_groups", data.get("config_groups"), "needs one at least")
        notes = (_OF_CACHE,) if data.get("kv_cache_scheme") else ()
        return cls(groups, _names("ignore", data.get("ignore")), notes=notes)


@dataclass(frozen=True)
class WrittenScheme:
    """How some layers are written: `group` inputs share a scale; 0: all of an output, int8."""

    bits: int
    group: int
    symmetric: bool

    def to_dict(self, targets: Collection[str]) -> dict[str, Any]:
        """Return the scheme as an entry of `config_groups`."""
        packed = self.group > 0
        strategy = "group" if packed else "channel"
        weights = _arguments(self.symmetric, strategy, dynamic=False) | {"num_bits": self.bits}
        if packed:
            weights["group_size"] = self.group
        return {
            "targets": list(targets),
            "weights": weights,
            # vLLM has no int8 activations in groups: such a layer computes in float there.
            "input_activations": None if packed else _arguments(True, "token", dynamic=True),
            "output_activations": None,
            "format": PACKED if packed else INTEGERS,
        }


def written(
    schemes: Mapping[WrittenScheme, Collection[str]], ignore: Collection[str]
) -> dict[str, Any]:
    """config.json's entry for a model whose linear layers but `ignore` are held as `schemes` say.

    These have the names of their layers.
    """
    if len(schemes) == 1:
        entries = [scheme.to_dict(["Linear"]) for scheme in schemes]
    else:
        entries = [scheme.to_dict(sorted(names)) for scheme, names in schemes.items()]
    formats = {entry["format"] for entry in entries}
    return {
        "quant_method": NAME,
        "format": formats.pop() if len(formats) == 1 else _MIXED,
        "quantization_status": "compressed",
        "config_groups": {f"group_{i}": entry for i, entry in enumerate(entries)},
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


def _scheme(name: str, group: Mapping[str, Any], whole: str | None) -> CompressedScheme:
    where = f"config_groups.{name}"
    packed = (group.get("format") or whole) == PACKED
    outputs = group.get("output_activations")
    inputs = group.get("input_activations")
    stored = (_packed if packed else _integers)(f"{where}.weights", group.get("weights"), inputs)
    if inputs is not None or not packed:
        _checked(f"{where}.input_activations", inputs, ("token",), dynamic=True)
    if outputs:
        raise _refused(f"{where}.output_activations", outputs, "Octavo has none")
    return CompressedScheme(_names(f"{where}.targets", group.get("targets")), stored)


def _names(where: str, given: Any) -> tuple[str, ...]:
    """Types and names of modules, of which regular expressions are some."""
    try:
        found: tuple[str, ...] = fitted(tuple[str, ...], given or (), where)
        for name in found:
            re.compile(name.removeprefix("re:") if name.startswith("re:") else "")
    except (TypeError, ValueError, re.error) as error:
        raise _refused(where, given, f"needs a list of names ({error})") from None
    return found


def _integers(where: str, given: Any, inputs: Any) -> StoredLinear:
    weights = _checked(where, given, ("channel", "tensor"), dynamic=False)
    return Int8Linear(weights["symmetric"], weights["strategy"] == "channel")


def _packed(where: str, given: Any, inputs: Any) -> StoredLinear:
    """Build the form of a layer whose weights are packed in words.

    Inputs are quantized by row where the folder says so, else in groups: that is nearest to the
    floats of the folder.
    """
    strategies = ("group", "channel", "tensor")
    weights = _checked(where, given, strategies, dynamic=False, bits=(4, 8))
    group = given.get("group_size") or 0
    if weights["strategy"] != "group" or group == -1:
        group = 0
    elif type(group) is not int or group % 32 or not 0 <= group < _LARGEST:
        raise _refused(f"{where}.group_size", group, "Octavo reads multiples of 32")
    order = given.get("actorder")
    return CompressedLinear(
        bits=given.get("num_bits", 8),
        group=group,
        by_row=inputs is not None,
        symmetric=weights["symmetric"],
        ordered=bool(order) and str(order) not in _IN_PLACE,
        per_tensor=weights["strategy"] == "tensor",
    )


def _checked(
    where: str,
    given: Any,
    strategies: Iterable[str],
    *,
    dynamic: bool,
    bits: tuple[int, ...] = (8,),
) -> Mapping[str, Any]:
    """Check arguments of weights or activations; return `strategy` and `symmetric`, filled in."""
    if not isinstance(given, Mapping):
        raise _refused(where, given, "Octavo's layers quantize both weights and activations")
    packs = "group" in strategies
    number = given.get("num_bits", 8)
    if type(number) is not int or number not in bits:
        allowed = " and ".join(map(str, bits))
        raise _refused(f"{where}.num_bits", given["num_bits"], f"Octavo reads {allowed}")
    for key, value in {"type": "int", "group_size": None, "dynamic": dynamic}.items():
        found = given.get(key, False if key == "dynamic" else value)
        if found != value and not (key == "group_size" and (packs or found == -1)):
            raise _refused(f"{where}.{key}", found, f"Octavo reads {value!r}")
    strategy = given.get("strategy") or ("group" if given.get("group_size") else "tensor")
    if strategy not in strategies:
        raise _refused(f"{where}.strategy", strategy, f"Octavo reads {' and '.join(strategies)}")
    if given.get("actorder") and not packs:
        raise _refused(f"{where}.actorder", given["actorder"], "Octavo reads none")
    return {"strategy": strategy, "symmetric": bool(given.get("symmetric", True))}


def _refused(where: str, found: Any, allowed: str) -> ModelError:
    return ModelError(f"{NAME}: {where} is {found!r}; {allowed}: {_ADVICE}")


def _matches(target: str, name: str, kind: str) -> bool:
    if target.startswith("re:"):
        return re.match(target.removeprefix("re:"), name) is not None
    return target in (name, kind)
