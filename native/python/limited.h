// What Python's C interface keeps out of its stable part, by the functions that do the same there: one module then
// serves every Python from 3.12 on. Elsewhere these names are Python's own macros, which check nothing.
#pragma once

#include <Python.h>

#ifdef Py_LIMITED_API

inline Py_ssize_t PyTuple_GET_SIZE(PyObject* tuple) { return PyTuple_Size(tuple); }
inline PyObject* PyTuple_GET_ITEM(PyObject* tuple, Py_ssize_t at) { return PyTuple_GetItem(tuple, at); }
inline void PyTuple_SET_ITEM(PyObject* tuple, Py_ssize_t at, PyObject* item) { PyTuple_SetItem(tuple, at, item); }
inline Py_ssize_t PyList_GET_SIZE(PyObject* list) { return PyList_Size(list); }
inline PyObject* PyList_GET_ITEM(PyObject* list, Py_ssize_t at) { return PyList_GetItem(list, at); }
inline Py_ssize_t PyDict_GET_SIZE(PyObject* dict) { return PyDict_Size(dict); }
inline double PyFloat_AS_DOUBLE(PyObject* number) { return PyFloat_AsDouble(number); }

inline PyObject* PyObject_CallMethodNoArgs(PyObject* object, PyObject* name) {
  return PyObject_VectorcallMethod(name, &object, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
}

#endif
