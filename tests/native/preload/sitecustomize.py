"""Puts another build of the C++ core in the installed one's place, here and in child processes.

For a Python with this folder on PYTHONPATH: OCTAVO_NATIVE is the path of the module to load. The
operators for ONNX Runtime come from its folder too: `custom_ops_library` asks where the module is.
"""

import os
import sys
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location


class Finder:
    """Comes before the finder of an editable installation."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != "octavo._native":
            return None
        return spec_from_file_location(name, os.environ["OCTAVO_NATIVE"])


if os.environ.get("OCTAVO_NATIVE"):
    sys.meta_path.insert(0, Finder)
