"""A library linked as wheels are asks for nothing that glibc 2.28 does not have."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.release.contents import binary_faults
from tests.release.old_glibc import NEWEST, link_folder

pytestmark = pytest.mark.slow

SOURCE = """
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
double power(double x) { return exp(x) + pow(x, x); }
int start(void *(*run)(void *)) { pthread_t made; return pthread_create(&made, NULL, run, NULL); }
void *find(const char *name) { return dlsym(dlopen(NULL, RTLD_NOW), name); }
long size(int file) { struct stat found; return fstat(file, &found) ? -1 : found.st_size; }
#ifdef NEWER
extern unsigned arc4random(void);
unsigned number(void) { return arc4random(); }
#endif
"""


def linked(folder: Path, *flags: str) -> Path:
    source, library = folder / "library.c", folder / "library.so"
    source.write_text(SOURCE)
    links = link_folder(folder / "glibc", "g++")
    command = ["gcc", "-shared", "-fPIC", "-s", *flags, source, f"-L{links}", "-lm", "-o", library]
    subprocess.run(command, check=True, capture_output=True)
    return library


def test_threads_dlopen_and_exp_are_those_of_an_old_glibc(tmp_path: Path) -> None:
    library = linked(tmp_path)
    command = ["readelf", "--wide", "--dynamic", "--version-info", library]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    versions = {tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([\d.]+)", said)}
    assert versions and max(versions) <= NEWEST
    needed = set(re.findall(r"Shared library: \[(.+)\]", said))
    assert needed == {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2"}
    assert list(binary_faults(library.read_bytes(), [])) == []


def test_it_runs_with_the_glibc_of_this_system(tmp_path: Path) -> None:
    library = linked(tmp_path)
    code = f"""
import ctypes, os
library = ctypes.CDLL({str(library)!r}, mode=os.RTLD_NOW)
library.power.restype, library.power.argtypes = ctypes.c_double, [ctypes.c_double]
library.size.restype = ctypes.c_long
print(library.power(1.0), library.size(os.open({str(library)!r}, os.O_RDONLY)))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["3.718281828459045", str(library.stat().st_size)]


def test_what_is_newer_is_found(tmp_path: Path) -> None:
    library = linked(tmp_path, "-DNEWER")
    assert list(binary_faults(library.read_bytes(), [])) == [
        "asks for arc4random, which no library gives"
    ]
