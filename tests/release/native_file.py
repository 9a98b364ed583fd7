"""Runs a file of target native with ONNX Runtime and Octavo's library alone, in Python 3.9 too.

python native_file.py LIBRARY FOLDER     FOLDER is one that small_model.py filled
"""

import ctypes
import os
import pathlib
import sys

import numpy as np
import onnxruntime as ort

library, folder = sys.argv[1], pathlib.Path(sys.argv[2])
ctypes.CDLL(library, mode=os.RTLD_NOW)  # every symbol is there
options = ort.SessionOptions()
options.register_custom_ops_library(library)
session = ort.InferenceSession(
    str(folder / "model.native.onnx"), options, providers=["CPUExecutionProvider"]
)
made = np.load(folder / "native.npz")
(y,) = session.run(None, {"x": made["x"]})
assert np.array_equal(y, made["y"]), "the bits differ from those of the system that made the file"
