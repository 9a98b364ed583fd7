"""One operator of ONNX, one file: what is a layer, how it may be held, and what it is read as.

`READERS` maps an operator's name to its reader. A module beside this one that declares a subclass
of `Reader` with a name in `op` is found by itself.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from octavo.onnx.operators.reader import Reader

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

READERS: dict[str, Reader] = {
    kind.op: kind() for kind in sorted(Reader.declared, key=lambda kind: kind.op)
}


def supported_ops() -> tuple[str, ...]:
    """Return the operators that have a reader, such as `MatMul` and `com.microsoft.Attention`."""
    return tuple(sorted(READERS))


def find_op(name: str) -> str | None:
    """Return an operator's full name, given with or without domain; None if it has no reader."""
    if name in READERS:
        return name
    return next((op for op in READERS if op.rpartition(".")[2] == name), None)
