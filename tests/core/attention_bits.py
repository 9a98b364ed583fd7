"""Prints whether an instruction multiplies bfloat16, and a digest of attention in bfloat16.

Whether a table uses AVX512_BF16 is settled once a process:

    OCTAVO_BFLOAT16=emulated python -m tests.core.attention_bits
"""

from __future__ import annotations

import hashlib

from octavo.core import kernels
from tests.core.attention_statement import Fields
from tests.core.test_attention_bfloat16 import CASES


def digest(cases: dict[str, Fields]) -> str:
    """Of what every case gives."""
    found = hashlib.sha256()
    for case in cases.values():
        found.update(case.run().tobytes())
    return found.hexdigest()


if __name__ == "__main__":
    print(kernels.has_bfloat16_products(), digest(CASES))
