"""What Octavo's operators say to an ONNX Runtime that is too old: none such can be installed here.

The library is called as ONNX Runtime calls it, with the interface of a runtime that has not the
version that the library asks for.
"""

from __future__ import annotations

import ctypes
from typing import NoReturn

import octavo.onnx

_CREATE_STATUS = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
_GET_API = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)
_VERSION = ctypes.CFUNCTYPE(ctypes.c_void_p)


class _ApiBase(ctypes.Structure):
    _fields_ = (("get_api", _GET_API), ("version_string", _VERSION))


def register(version: str) -> NoReturn:
    """Registers the operators with ONNX Runtime `version`, below 1.17.

    Raises RuntimeError with the message that the library gives such a runtime.
    """
    said: list[str] = []

    def create_status(code: int, message: bytes) -> int:
        said.append(message.decode())
        return 1

    # It is the first function of every version's table.
    create = _CREATE_STATUS(create_status)
    table = (ctypes.c_void_p * 1)(ctypes.cast(create, ctypes.c_void_p))
    get_api = _GET_API(lambda asked: ctypes.addressof(table) if asked < 17 else None)
    text = ctypes.create_string_buffer(version.encode())
    base = _ApiBase(get_api, _VERSION(lambda: ctypes.addressof(text)))
    library = ctypes.CDLL(octavo.onnx.custom_ops_library())
    library.RegisterCustomOps(None, ctypes.byref(base))
    raise RuntimeError(*said)
