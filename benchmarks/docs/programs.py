"""Programs of `examples/` as blocks of code, for the marks of `benchmarks.docs.marks`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from benchmarks.results import REPOSITORY

EXAMPLES = REPOSITORY / "examples"


def body(name: str, _: str = "") -> Iterator[str]:
    """`examples/NAME.py` without its docstring, its command line and what only that imports.

    Raises LookupError where there is no such program.
    """
    path = EXAMPLES / f"{name}.py"
    if not path.is_file():
        known = ", ".join(sorted(path.stem for path in EXAMPLES.glob("*.py")))
        raise LookupError(f"there is no example {name!r}; there are {known}")
    text = path.read_text("utf-8")
    nodes = [node for node in ast.parse(text).body if not isinstance(node, ast.Expr | ast.If)]
    used = {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}
    unused = {
        line
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom) and not used & _bound(node)
        for line in _lines(node)
    }
    lines = text.splitlines()
    first, last = _lines(nodes[0])[0], _lines(nodes[-1])[-1]
    yield "```python"
    yield from (lines[i - 1] for i in range(first, last + 1) if i not in unused)
    yield "```"


def _bound(node: ast.Import | ast.ImportFrom) -> set[str]:
    return {(alias.asname or alias.name).partition(".")[0] for alias in node.names}


def _lines(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)
