"""What a config means as a scheme. Configs are known by their class's name, ours and torchao's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any

import torch

from octavo.core.qparams import QType
from octavo.errors import OptionError, listed
from octavo.recipe import ActivationScheme, Granularity, Scheme, WeightScheme
from octavo.recipe.scheme import GROUPS

_HOMES = ("octavo.torch.torchao", "torchao")
"""Packages whose classes of these names are meant."""

_DTYPES = {"int4": QType.INT4, "int8": QType.INT8}
_SYMMETRIC = {"SYMMETRIC": True, "SYMMETRIC_NO_CLIPPING_ERR": True, "ASYMMETRIC": False}
_ROW_ZEROS = "activations have zero points too"
_HOW: dict[str, tuple[Any, ...]] = {
    "set_inductor_config": (True, False),
    "intx_packing_format": (
        "unpacked_to_int8",
        *("opaque_torchao_auto", "opaque_torchao_lowbit"),
        *("opaque_torchao_kleidiai", "opaque_aten_kleidiai"),
    ),
    "intx_choose_qparams_algorithm": ("affine",),
}
"""Fields that say how torchao goes about it, and their values. Octavo packs weights in its own way,
and searches for the scales of groups: none of these changes what a layer means."""


@dataclass(frozen=True)
class Asked:
    """A scheme, and what is otherwise than the config says ("": nothing)."""

    scheme: Scheme
    note: str = ""


@dataclass
class _Fields:
    """The fields of a config. What is left when all were read, Octavo does not honour."""

    config: Any

    def __post_init__(self) -> None:
        self.kind = type(self.config).__name__
        self._left = {f.name: f for f in fields(self.config)}
        for name in _HOW.keys() & self._left.keys():
            value = self.take(name)
            if getattr(value, "value", value) not in _HOW[name]:
                raise self.refuse(name, value, ", ".join(map(str, _HOW[name])))

    def take(self, name: str) -> Any:
        """Return the value of the field `name`, which counts as read then."""
        self._left.pop(name, None)
        return getattr(self.config, name)

    def refuse(self, name: str, value: Any, allowed: str) -> OptionError:
        """Build the error about a field's value that Octavo does not have."""
        return OptionError(f"{self.kind}.{name}: {value!r} is not among what Octavo has: {allowed}")

    def choose(self, name: str, value: Any, table: dict[str, Any]) -> Any:
        """Return `table[value]`. Raises OptionError about the field `name` where it is missing."""
        if value not in table:
            raise self.refuse(name, value, ", ".join(table))
        return table[value]

    def check_rest(self) -> None:
        """Raise OptionError for a field that nothing read and whose value is not the default."""
        for name, one in self._left.items():
            value = getattr(self.config, name)
            made = one.default_factory
            default = one.default if made is MISSING else made()
            if value != default:
                raise self.refuse(name, value, f"{default!r} alone")


def asked(config: Any) -> Asked:
    """Return what `config` asks of a layer. Raises OptionError, which names what Octavo has not."""
    kind = type(config)
    home = kind.__module__
    ours = any(home == known or home.startswith(f"{known}.") for known in _HOMES)
    read = _READERS.get(kind.__name__) if ours and is_dataclass(config) else None
    if read is None:
        raise OptionError(
            f"config: a {home}.{kind.__qualname__} is none that Octavo knows: use "
            f"{listed(list(_READERS), 9)}, or octavo.torch.quantize_dynamic with a recipe"
        )
    f = _Fields(config)
    found = read(f)
    f.check_rest()
    return found


def _int8_int4(f: _Fields) -> Asked:
    return Asked(
        Scheme(_weight_groups(f, "group_size", f.take("group_size"), QType.INT4, False)),
        _row_note(f),
    )


def _int8_int8(f: _Fields) -> Asked:
    given = f.take("granularity")
    pair = given if isinstance(given, (list, tuple)) else (given, given)
    if len(pair) != 2:
        raise f.refuse("granularity", given, "PerRow(), PerTensor(), or a list of two of them")
    inputs, outputs = (_row_or_tensor(f, one) for one in pair)
    weight = WeightScheme(
        granularity=Granularity.TENSOR if outputs is Granularity.TENSOR else Granularity.CHANNEL,
        reduce_range=bool(f.take("reduce_range")),
    )
    return Asked(Scheme(weight, ActivationScheme(granularity=inputs)), _row_note(f))


def _row_or_tensor(f: _Fields, one: Any) -> Granularity:
    kind = "PerRow" if one is None else type(one).__name__
    if kind == "PerTensor":
        return Granularity.TENSOR
    if kind != "PerRow" or getattr(one, "dim", -1) != -1:
        raise f.refuse("granularity", one, "PerRow(), PerTensor()")
    return Granularity.ROW


def _int8_intx(f: _Fields) -> Asked:
    weight = _intx(f, "weight_")
    return Asked(Scheme(weight), _row_note(f))


def _weight_only(f: _Fields) -> Asked:
    return Asked(Scheme(_intx(f, ""), None))


def _intx(f: _Fields, prefix: str) -> WeightScheme:
    """Return the weight scheme of a config whose fields about weights begin with `prefix`."""
    dtype = str(f.take("weight_dtype")).removeprefix("torch.")
    qtype = f.choose("weight_dtype", dtype, _DTYPES)
    mapping = f.take(f"{prefix}mapping_type")
    symmetric = f.choose(f"{prefix}mapping_type", getattr(mapping, "name", mapping), _SYMMETRIC)
    name, scale = f"{prefix}granularity", f"{prefix}scale_dtype"
    found, stored = f.take(name), f.take(scale)
    kind = type(found).__name__
    if kind == "PerGroup":
        if stored not in (None, torch.float16):
            raise f.refuse(scale, stored, "None, torch.float16")
        return _weight_groups(f, name, found.group_size, qtype, symmetric)
    groups = ", ".join(f"PerGroup({g})" for g in GROUPS)
    if kind != "PerAxis" or found.axis != 0 or qtype is QType.INT4:
        also = "" if qtype is QType.INT4 else ", PerAxis(0)"
        raise f.refuse(name, found, f"for torch.{qtype.value} {groups}{also}")
    if stored not in (None, torch.float32):
        raise f.refuse(scale, stored, "None, torch.float32")
    return WeightScheme(symmetric=symmetric)


def _weight_groups(f: _Fields, name: str, size: Any, qtype: QType, symmetric: bool) -> WeightScheme:
    if size not in GROUPS:
        raise f.refuse(name, size, f"groups of {', '.join(map(str, GROUPS))}")
    return WeightScheme(
        qtype, Granularity.BLOCK, symmetric=symmetric, observer="search", block=size
    )


def _row_note(f: _Fields) -> str:
    mapping = f.take("act_mapping_type")
    name = getattr(mapping, "name", mapping)
    return _ROW_ZEROS if f.choose("act_mapping_type", name, _SYMMETRIC) else ""


_READERS: dict[str, Callable[[_Fields], Asked]] = {
    "Int8DynamicActivationInt4WeightConfig": _int8_int4,
    "Int8DynamicActivationInt8WeightConfig": _int8_int8,
    "Int8DynamicActivationIntxWeightConfig": _int8_intx,
    "IntxWeightOnlyConfig": _weight_only,
}
