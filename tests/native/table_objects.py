"""What the object file of a kernel table offers to the linker."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

OWN = re.compile(r"octavo::\w+_(table|peak)\(\)")
FUNCTION = re.compile(r"^[0-9a-f]+ [TWi] (.*)$", re.MULTILINE)
"""A line of `nm -C`: strong, weak, or chosen when loaded. In a DLL's objects all are strong."""


def table_faults(folder: Path, nm: str = "nm") -> list[str]:
    """What is wrong with the tables' objects of the build in `folder`."""
    files = sorted(folder.glob("CMakeFiles/core.dir/native/isa/table_*.cpp.o*"))
    files = [file for file in files if file.suffix in (".o", ".obj")]
    if not files:
        return [f"no tables are in {folder}"]
    return [f"{f.name} offers {name} to other files" for f in files for name in strangers(f, nm)]


def strangers(file: Path, nm: str = "nm") -> list[str]:
    """Functions beside the table's own that other files could be linked with."""
    command = [nm, "--demangle", "--defined-only", "--extern-only", str(file)]
    said = subprocess.check_output(command, text=True)
    return sorted({name for name in FUNCTION.findall(said) if not OWN.fullmatch(name)})
