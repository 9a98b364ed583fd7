"""Runs the command line in this process, in a folder with the small models of `tests/errors`."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.golden.facts import Facts, cleaned

MEASURED = re.compile(r"(?<![\w.\[-])\d+(?:[.,]\d+)*(?:e-?\d+)?\b ?%?")
"""Numbers that a clock or a file's size may be in."""


@contextlib.contextmanager
def within(folder: Path) -> Iterator[None]:
    """`folder` is the current one; modules that are found in it are forgotten at the end."""
    was, path, modules = Path.cwd(), list(sys.path), set(sys.modules)
    bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(was)
        sys.path[:], sys.dont_write_bytecode = path, bytecode
        for name in set(sys.modules) - modules:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
                del sys.modules[name]


def command(line: str, folder: Path) -> tuple[int, str, list[str]]:
    """Exit code, stdout and, without numbers, stderr of a line that begins with `octavo`."""
    from octavo.cli import main

    out, err = io.StringIO(), io.StringIO()
    code = 0
    with within(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(shlex.split(line)[1:])
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, tidy(out.getvalue(), folder), plain(tidy(err.getvalue(), folder))


def plain(text: str) -> list[str]:
    """Lines without numbers."""
    return [MEASURED.sub("N", line) for line in text.splitlines()]


def files(folder: Path) -> Facts:
    """The names of what lies there."""
    return {"files": sorted(p.name for p in folder.iterdir() if p.name != "__pycache__")}


def tidy(text: str, folder: Path) -> str:
    """Without places of this machine, times, and the widths of tables."""
    text = text.replace(str(folder), "FOLDER").replace(sys.executable, "python")
    text = re.sub(r"/[^\s\"':]*/(?=octavo/|site-packages/|lib/python)", ".../", cleaned(text))
    text = re.sub(r"[─━═]{3,}", "---", text)
    text = re.sub(r"(Timed in turns for .*?) on .*?, kernels \w+\.", r"\1 on MACHINE.", text)
    return "\n".join(re.sub(r" {2,}", "  ", line.rstrip()) for line in text.strip().splitlines())
