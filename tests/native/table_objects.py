"""What the object file of a kernel table offers to the linker."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

OWN = re.compile(r"octavo::\w+_(table|peak)\(\)")
FUNCTION = re.compile(r"^[0-9a-f]+ [TWi] (.*)$", re.MULTILINE)
"""A line of `nm -C`: strong, weak, or chosen when it is loaded. In a DLL's objects all are strong."""


def strangers(file: Path, nm: str = "nm") -> list[str]:
    """Functions beside the table's own that other files could be linked with."""
    command = [nm, "--demangle", "--defined-only", "--extern-only", str(file)]
    said = subprocess.check_output(command, text=True)
    return sorted({name for name in FUNCTION.findall(said) if not OWN.fullmatch(name)})
