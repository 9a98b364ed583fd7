"""Prints a digest of what ai.octavo.Attention computes, for test_attention_op.

The library of operators chooses its instruction set once a process, so each needs one of its own:

    OCTAVO_ISA=avx2 python -m tests.native_target.attention_bits
"""

from __future__ import annotations

import hashlib

from tests.core.attention_cases import CASES, operands
from tests.native_target.nodes import run


def main() -> None:
    """Prints the digest."""
    digest = hashlib.sha256()
    for case in CASES:
        for allowed in (0, 1):
            found = run("Attention", operands(case), {}, heads=case.heads, bfloat16=allowed)
            digest.update(found.tobytes())
    print(digest.hexdigest())


if __name__ == "__main__":
    main()
