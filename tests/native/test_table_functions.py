"""No table's file leaves a function to the others: the linker might keep the one for AVX-512."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native.building import ROOT
from tests.native.table_objects import strangers, table_faults
from tests.native.test_native_headers import (
    ARM64,
    ARM64_FLAGS,
    AVX2,
    COMPILER,
    CROSS_COMPILER,
    X86,
    X86_FLAGS,
)

X86_TABLES = X86_FLAGS | {"avx512vnni256": AVX2, "avx512vnni": X86_FLAGS["vnni_avx512"]}
del X86_TABLES["vnni_avx512"]
TABLES = X86_TABLES | ARM64_FLAGS


def test_every_table_is_looked_at() -> None:
    files = {path.stem.removeprefix("table_") for path in ROOT.glob("native/isa/table_*.cpp")}
    assert files == {*TABLES, "reference"}


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_a_table_offers_nothing_but_itself_even_where_nothing_is_optimized(
    table: str, tmp_path: Path
) -> None:
    foreign = not (ARM64 if table in ARM64_FLAGS else X86)
    compiler = CROSS_COMPILER if foreign and table in ARM64_FLAGS else COMPILER
    if (foreign and compiler == COMPILER) or not shutil.which(compiler):
        pytest.skip(f"NOT TESTED: there is no compiler for {table}")
    defined = ("-DOCTAVO_ARM64",) if table in ARM64_FLAGS else ("-DOCTAVO_X86", "-DOCTAVO_AMX")
    flags = ("-std=c++17", "-O0", "-fPIC", f"-I{ROOT / 'native'}", *defined, *TABLES[table])
    source, to = ROOT / "native" / "isa" / f"table_{table}.cpp", tmp_path / "table.o"
    subprocess.run([compiler, *flags, "-c", source, "-o", to], check=True)
    assert strangers(to) == []


def test_a_function_for_all_is_found(tmp_path: Path) -> None:
    source, to = tmp_path / "table.cpp", tmp_path / "table.o"
    source.write_text(
        "namespace octavo {\n"
        "inline int twice(int x) { return x + x; }\n"
        "int avx2_table() { return twice(1); }\n"
        "}\n"
    )
    subprocess.run([COMPILER, "-O0", "-c", source, "-o", to], check=True)
    assert strangers(to) == ["octavo::twice(int)"]


def test_the_installed_module_is_of_such_objects() -> None:
    objects = (ROOT / "build").glob("cp*/CMakeFiles/core.dir/native/isa")
    built = [folder.parents[3] for folder in objects]
    if not built:
        pytest.skip("NOT TESTED: the module was not built in this folder")
    assert table_faults(max(built, key=os.path.getmtime)) == []
