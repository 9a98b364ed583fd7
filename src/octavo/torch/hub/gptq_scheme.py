"""The words of GPTQ and AWQ in config.json: which of their folders Octavo's layers compute.

Neither names its layers there: those are quantized whose integers the files hold.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from octavo.errors import ModelError
from octavo.torch.hub.stored_linears import AwqLinear, GptqLinear, StoredLinear

GPTQ, AWQ = "gptq", "awq"
_ADVICE = "give the float checkpoint it was made of, with quantization_config=OctavoConfig()"
_VERSIONS = {"gptq": 1, "gptq_v2": 0}
"""By checkpoint format what its stored zero points lack."""


@dataclass(frozen=True)
class GptqConfig:
    """The `quantization_config` of a folder of GPTQ or AWQ, as far as Octavo reads it."""

    method: str
    linear: GptqLinear | AwqLinear

    def stored(self, name: str, kind: str, files: Collection[str] = ()) -> StoredLinear | None:
        """How the module is stored; None where it is float. `files` name the folder's tensors."""
        if f"{name}.qweight" not in files:
            return None
        if isinstance(self.linear, AwqLinear):
            return replace(self.linear, has_zeros=f"{name}.qzeros" in files)
        return replace(self.linear, has_order=f"{name}.g_idx" in files)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> GptqConfig:
        """Reads config.json's entry. Raises ModelError, which names the field that differs."""
        method = str(getattr(data.get("quant_method"), "value", data.get("quant_method")))
        group = data.get("group_size", data.get("q_group_size", 128))
        if type(group) is not int or (group != -1 and (group < 1 or group % 32)):
            raise _refused(method, "group_size", group, "Octavo reads -1 and multiples of 32")
        read = _awq if method == AWQ else _gptq
        return cls(method, read(data, max(group, 0)))


def _gptq(data: Mapping[str, Any], group: int) -> GptqLinear:
    bits = data.get("bits", 4)
    if bits not in (4, 8):
        raise _refused(GPTQ, "bits", bits, "Octavo reads 4 and 8")
    version = data.get("checkpoint_format") or data.get("format") or GPTQ
    if version not in _VERSIONS:
        known = " and ".join(_VERSIONS)
        raise _refused(GPTQ, "checkpoint_format", version, f"Octavo reads {known}")
    for key in ("dynamic", "is_marlin_format"):
        if data.get(key):
            raise _refused(GPTQ, key, data[key], "Octavo reads one way of all layers")
    symmetric = data.get("sym") is True
    return GptqLinear(bits=bits, group=group, offset=_VERSIONS[version], symmetric=symmetric)


def _awq(data: Mapping[str, Any], group: int) -> AwqLinear:
    bits = data.get("bits", data.get("w_bit", 4))
    if bits != 4:
        raise _refused(AWQ, "bits", bits, "Octavo reads 4")
    version = str(data.get("version") or data.get("format") or "gemm").lower()
    if version != "gemm":
        raise _refused(AWQ, "version", version, "Octavo reads 'gemm'")
    return AwqLinear(bits=4, group=group)


def _refused(method: str, where: str, found: Any, allowed: str) -> ModelError:
    return ModelError(f"{method}: {where} is {found!r}; {allowed}: {_ADVICE}")
