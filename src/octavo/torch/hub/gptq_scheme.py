"""The words of GPTQ, AWQ and auto-round in config.json: which folders Octavo's layers compute.

None names its layers there: those are quantized whose integers the files hold.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

from octavo.core.data import fitted
from octavo.core.packages import all_of
from octavo.errors import ModelError, brief
from octavo.torch.hub.stored_linears import AwqLinear, GptqLinear, StoredLinear

GPTQ, AWQ, AUTO_ROUND = "gptq", "awq", "auto-round"
INTEGERS = ".qweight"
"""How the names of tensors end that these methods write."""

_OF_OLD = (("quantize_config.json", GPTQ), ("quant_config.json", AWQ))
"""Where older tools say what newer ones say in config.json."""

_PACKINGS = {
    "auto_round:auto_gptq": GPTQ,
    "auto_round:gptq": GPTQ,
    "auto_round:auto_awq": AWQ,
    "auto_round:awq": AWQ,
}
"""Of auto-round, those that are another method's."""

_LARGEST = 1 << 31  # inputs of a group
_ADVICE = "give the float checkpoint it was made of, with quantization_config=OctavoConfig()"
_VERSIONS = {"gptq": 1, "gptq_v2": 0}
"""By checkpoint format what its stored zero points lack."""


@dataclass(frozen=True)
class GptqConfig:
    """The `quantization_config` of a folder of GPTQ or AWQ, as far as Octavo reads it."""

    method: str
    linear: GptqLinear | AwqLinear
    notes: tuple[str, ...] = ()

    def stored(self, name: str, kind: str, files: Collection[str] = ()) -> StoredLinear | None:
        """Return how the module is stored; None where it is float.

        `files` name the folder's tensors.
        """
        if f"{name}.qweight" not in files:
            return None
        if isinstance(self.linear, AwqLinear):
            return replace(self.linear, has_zeros=f"{name}.qzeros" in files)
        return replace(self.linear, has_order=f"{name}.g_idx" in files)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GptqConfig:
        """Read config.json's entry. Raises ModelError, which names the field that differs."""
        method = str(getattr(data.get("quant_method"), "value", data.get("quant_method")))
        group = data.get("group_size", data.get("q_group_size", 128))
        if type(group) is not int or (group != -1 and (group % 32 or not 0 < group < _LARGEST)):
            raise _refused(method, "group_size", group, "Octavo reads -1 and multiples of 32")
        packed, notes = _packing(data) if method == AUTO_ROUND else (method, ())
        read = _awq if packed == AWQ else _gptq
        return cls(method, read(data, max(group, 0)), notes)

    @classmethod
    def of_old(cls, folder: Path, names: Collection[str]) -> GptqConfig | None:
        """Return the config, found by its tensors, of a folder whose config.json says nothing.

        None where the tensors are floats. Raises ModelError where no file says how they are packed.
        """
        found = next((name for name in sorted(names) if name.endswith(INTEGERS)), None)
        if found is None:
            return None
        for name, method in _OF_OLD:
            if not (folder / name).is_file():
                continue
            try:
                data = json.loads((folder / name).read_text("utf-8"))
                return cls.from_dict({"quant_method": method} | data)
            except (ValueError, TypeError, RecursionError) as error:
                raise ModelError(f"{folder / name} cannot be read: {brief(error)}") from error
        raise ModelError(
            f"{folder} holds {found}, integers of GPTQ or AWQ, and neither its config.json nor "
            f"{' or '.join(name for name, _ in _OF_OLD)} says how: fetch that file too, or "
            f"{_ADVICE}"
        )


class _Extra(TypedDict, total=False):
    """What auto-round says of one layer."""

    bits: int


def _packing(data: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Whose words auto-round wrote, and notes. Raises ModelError for its own and mixed ones."""
    packing = data.get("packing_format")
    if not isinstance(packing, str) or packing not in _PACKINGS:
        raise _refused(
            AUTO_ROUND, "packing_format", packing, f"Octavo reads {all_of(list(_PACKINGS))}"
        )
    if data.get("data_type", "int") != "int":
        raise _refused(AUTO_ROUND, "data_type", data["data_type"], "Octavo reads 'int'")
    try:
        extra = fitted(dict[str, _Extra], data.get("extra_config") or {}, "extra_config")
    except (TypeError, ValueError) as error:
        raise _refused(
            AUTO_ROUND, "extra_config", data["extra_config"], f"Octavo reads layers ({error})"
        ) from None
    for name, own in extra.items():
        for key in ("bits", "group_size", "sym"):
            value = own.get(key, data.get(key))
            if own.get("bits", 0) < 16 and value != data.get(key):
                where = f"extra_config.{name}.{key}"
                raise _refused(AUTO_ROUND, where, value, "Octavo reads one way of all layers")
    return _PACKINGS[packing], (f"auto-round packed them as {_PACKINGS[packing]} does",)


def _gptq(data: Mapping[str, Any], group: int) -> GptqLinear:
    bits = data.get("bits", 4)
    if type(bits) is not int or bits not in (4, 8):
        raise _refused(GPTQ, "bits", bits, "Octavo reads 4 and 8")
    version = data.get("checkpoint_format") or data.get("format") or GPTQ
    if not isinstance(version, str) or version not in _VERSIONS:
        known = " and ".join(_VERSIONS)
        raise _refused(GPTQ, "checkpoint_format", version, f"Octavo reads {known}")
    for key in ("dynamic", "is_marlin_format"):
        if data.get(key):
            raise _refused(GPTQ, key, data[key], "Octavo reads one way of all layers")
    symmetric = data.get("sym") is True
    return GptqLinear(bits=bits, group=group, offset=_VERSIONS[version], symmetric=symmetric)


def _awq(data: Mapping[str, Any], group: int) -> AwqLinear:
    bits = data.get("bits", data.get("w_bit", 4))
    if type(bits) is not int or bits != 4:
        raise _refused(AWQ, "bits", bits, "Octavo reads 4")
    version = str(data.get("version") or data.get("format") or "gemm").lower()
    if version != "gemm":
        raise _refused(AWQ, "version", version, "Octavo reads 'gemm'")
    return AwqLinear(bits=4, group=group)


def _refused(method: str, where: str, found: Any, allowed: str) -> ModelError:
    return ModelError(f"{method}: {where} is {found!r}; {allowed}: {_ADVICE}")
