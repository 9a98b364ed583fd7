"""What ONNX Runtime's int8 products are on a processor."""

from __future__ import annotations

import pytest

from octavo.core import cpu
from octavo.core.cpu import saturates, uses_vnni

AVX2 = {"sse2", "fma", "f16c", "avx2"}
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512vl", "avx512dq"}


@pytest.mark.parametrize(
    ("features", "vnni", "loses_bits"),
    [
        ({"sse2"}, False, False),
        (AVX2, False, True),
        (AVX512, False, True),
        (AVX2 | {"avxvnni"}, True, False),
        (AVX512 | {"avx512vnni"}, True, False),
        (AVX512 | {"avx512vnni", "avxvnni", "amxint8"}, True, False),
        (AVX512 | {"avxvnni"}, False, True),
        ({"neon", "dotprod"}, False, False),
    ],
    ids=[
        "neither",
        "AVX2",
        "AVX-512",
        "AVX-VNNI",
        "AVX512-VNNI",
        "AMX",
        "AVX-512 and AVX-VNNI: it takes its kernels of AVX-512",
        "ARM",
    ],
)
def test_which_processors_lose_bits(features: set[str], vnni: bool, loses_bits: bool) -> None:
    assert (uses_vnni(features), saturates(features)) == (vnni, loses_bits)


def test_a_processor_has_its_maker_s_name_where_the_system_tells_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = "vendor_id : AuthenticAMD\nmodel name\t: AMD EPYC  9R14\nmodel name\t: another\n"
    monkeypatch.setattr(cpu, "_cpuinfo", lambda: told)
    assert cpu.processor_name() == "AMD EPYC 9R14"
    assert cpu.made_by_amd()
    monkeypatch.setattr(cpu, "_cpuinfo", lambda: "")
    assert cpu.processor_name() == cpu.platform.machine()
    assert cpu.usable_processors() >= 1
