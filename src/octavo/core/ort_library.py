"""Where the library with Octavo's operators for ONNX Runtime is."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from octavo.errors import ModelError

LIBRARY = {"darwin": "liboctavo_ort.dylib", "win32": "octavo_ort.dll"}.get(
    sys.platform, "liboctavo_ort.so"
)


def custom_ops_library() -> str:
    """Return the path of the library with Octavo's operators, for `register_custom_ops_library`.

    For those who build sessions themselves, in any language: one call on the session options, and
    ONNX Runtime runs files of target native. Raises ModelError where the library is missing.
    """
    found = find_spec("octavo._native")
    folder = Path(found.origin).parent if found is not None and found.origin else Path()
    library = folder / LIBRARY
    if not library.is_file():
        raise ModelError(
            f"{library} is missing: octavo is not installed whole; install it again, "
            "or use target portable"
        )
    return str(library)
