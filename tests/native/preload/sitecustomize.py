"""Puts other Python or C++ of Octavo in the installed one's place, here and in child processes.

For a Python with this folder on PYTHONPATH: OCTAVO_NATIVE is the path of the core's module to load,
OCTAVO_SOURCE a folder that holds the package `octavo`. The operators for ONNX Runtime come from the
module's folder too: `custom_ops_library` asks where the module is.
"""

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location


class Finder:
    """Comes before the finder of an editable installation."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name == "octavo._native":
            core = os.environ.get("OCTAVO_NATIVE")
            return spec_from_file_location(name, core) if core else None
        source = os.environ.get("OCTAVO_SOURCE")
        if source and name.partition(".")[0] == "octavo":
            folder = os.path.join(source, *name.split(".")[:-1])  # noqa: PTH118 (pathlib is not loaded yet)
            return PathFinder.find_spec(name, [folder])
        return None


if os.environ.get("OCTAVO_NATIVE") or os.environ.get("OCTAVO_SOURCE"):
    sys.meta_path.insert(0, Finder)
