// What the call of a block of PyTorch asks before it runs: the form of its arguments, and whether the block is what it
// was. Both are scores of looks into dictionaries, which take as long as a small layer where Python makes them.
#include <algorithm>
#include <cstring>
#include <string>

#include "python/sources.h"
#include "python/torch_process.h"

namespace octavo {
namespace {

// The arguments of a call, depth first.
struct Form {
  std::string key;
  Owned tensors{PyList_New(0)}, objects{PyList_New(0)}, sizes{PyList_New(0)};

  bool add(PyObject* value) {  // false: no plain one, or an error
    if (add_plain(value)) return true;
    // Numbers beyond 64 bits and texts that are no Unicode are no forms.
    if (PyErr_ExceptionMatches(PyExc_OverflowError) || PyErr_ExceptionMatches(PyExc_UnicodeError)) PyErr_Clear();
    return false;
  }

  bool add_plain(PyObject* value) {
    if (value == Py_None) return mark('n');
    if (value == Py_True) return mark('t');
    if (value == Py_False) return mark('f');
    PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(value));
    if (is_tensor(value)) return add_tensor(value);
    if (PyLong_CheckExact(value)) return mark('i') && add_number(PyLong_AsLongLong(value));
    if (PyFloat_CheckExact(value)) return mark('d') && add_number(PyFloat_AS_DOUBLE(value));
    if (PyUnicode_CheckExact(value)) return add_text(value);
    if (PyTuple_CheckExact(value)) {
      mark('(');
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i)
        if (!add(PyTuple_GET_ITEM(value, i))) return false;
      return mark(')');
    }
    if (PyList_CheckExact(value)) {
      mark('[');
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(value); ++i)
        if (!add(PyList_GET_ITEM(value, i))) return false;
      return mark(']');
    }
    if (PyDict_CheckExact(value)) return add_dict(value);
    // A subclass of one of those, or anything else: told by its type alone.
    if (PyObject_IsInstance(value, tensor_type()) != 0 || PyTuple_Check(value) || PyList_Check(value) || PyDict_Check(value)) return false;
    mark('o');
    add_number(reinterpret_cast<std::uintptr_t>(type));
    return PyList_Append(objects.get(), value) == 0;
  }

  bool add_dict(PyObject* dict) {
    mark('{');
    PyObject *name, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(dict, &at, &name, &value))
      if (!PyUnicode_CheckExact(name) || !add_text(name) || !add(value)) return false;
    return mark('}');
  }

 private:
  bool mark(char c) {
    key.push_back(c);
    return true;
  }

  template <class Number>
  bool add_number(Number number) {
    char bytes[sizeof(Number)];
    std::memcpy(bytes, &number, sizeof(Number));
    key.append(bytes, sizeof(Number));
    return !PyErr_Occurred();
  }

  bool add_text(PyObject* text) {
    Py_ssize_t length;
    const char* bytes = PyUnicode_AsUTF8AndSize(text, &length);
    if (!bytes) return false;
    mark('s');
    add_number(length);
    key.append(bytes, static_cast<std::size_t>(length));
    return true;
  }

  bool add_tensor(PyObject* tensor) {
    nb::dlpack::dltensor t;
    if (!plain_values(tensor) || !view(tensor, t)) return false;
    std::int64_t count = 1;
    mark('T');
    mark(static_cast<char>(t.dtype.code));
    mark(static_cast<char>(t.dtype.bits));
    mark(static_cast<char>(t.ndim));
    for (std::int32_t i = 0; i < t.ndim; ++i) {
      // What is traced of an axis of no or one element is true of no other.
      mark(static_cast<char>('0' + (t.shape[i] < 2 ? t.shape[i] : 2)));
      count *= t.shape[i];
      const Owned size(PyLong_FromLongLong(t.shape[i]));
      if (!size || PyList_Append(sizes.get(), size.get()) != 0) return false;
    }
    if (address(t) == 0 && count != 0) return false;  // autograd's zeros have no memory
    return PyList_Append(tensors.get(), tensor) == 0;
  }
};

// call_form(args, kwargs)
PyObject* call_form(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (count != 2 || !PyTuple_Check(given[0]) || !PyDict_Check(given[1])) {
    PyErr_SetString(PyExc_TypeError, "call_form: takes a tuple and a dict");
    return nullptr;
  }
  bool plain = false;
  if (tensor_type() && plain_process()) {
    Form form;
    if (form.tensors && form.objects && form.sizes) {
      plain = true;
      for (Py_ssize_t i = 0; plain && i < PyTuple_GET_SIZE(given[0]); ++i) plain = form.add(PyTuple_GET_ITEM(given[0], i));
      plain = plain && form.add_dict(given[1]);
    }
    if (plain) {
      const Owned key(PyBytes_FromStringAndSize(form.key.data(), static_cast<Py_ssize_t>(form.key.size())));
      const Owned tensors(PyList_AsTuple(form.tensors.get())), objects(PyList_AsTuple(form.objects.get())), sizes(PyList_AsTuple(form.sizes.get()));
      if (!key || !tensors || !objects || !sizes) return nullptr;
      return PyTuple_Pack(4, key.get(), tensors.get(), objects.get(), sizes.get());
    }
  }
  if (PyErr_Occurred()) return nullptr;
  Py_RETURN_NONE;
}

PyObject* item(PyObject* tuple, Py_ssize_t at) { return PyTuple_GET_ITEM(tuple, at); }

// Each of these goes through a flat tuple, and tells whether all that it says still holds.

bool entries_hold(PyObject* flat) {  // dict, key, value
  for (Py_ssize_t i = 0; i + 2 < PyTuple_GET_SIZE(flat); i += 3)
    if (PyDict_GetItemWithError(item(flat, i), item(flat, i + 1)) != item(flat, i + 2)) return false;
  return true;
}

bool absences_hold(PyObject* flat) {  // dict, key
  for (Py_ssize_t i = 0; i + 1 < PyTuple_GET_SIZE(flat); i += 2)
    if (PyDict_GetItemWithError(item(flat, i), item(flat, i + 1)) || PyErr_Occurred()) return false;
  return true;
}

bool types_hold(PyObject* flat) {  // object, type
  for (Py_ssize_t i = 0; i + 1 < PyTuple_GET_SIZE(flat); i += 2)
    if (reinterpret_cast<PyObject*>(Py_TYPE(item(flat, i))) != item(flat, i + 1)) return false;
  return true;
}

bool attributes_hold(PyObject* flat) {  // object, name, value
  for (Py_ssize_t i = 0; i + 2 < PyTuple_GET_SIZE(flat); i += 3)
    if (!Owned(PyObject_GetAttr(item(flat, i), item(flat, i + 1))).is(item(flat, i + 2))) return false;
  return true;
}

bool sources_hold(PyObject* flat) {  // Sources, dict or tuple of tensors
  for (Py_ssize_t i = 0; i + 1 < PyTuple_GET_SIZE(flat); i += 2) {
    const auto* sources = nb::inst_ptr<Sources>(item(flat, i));
    PyObject* tensors = item(flat, i + 1);
    if (!(PyDict_Check(tensors) ? sources->current(tensors) : sources->current_of(tensors))) return false;
  }
  return true;
}

bool hooks_hold(PyObject* flat) {  // dict, key, set of the only values that the dict in there may have, by identity
  for (Py_ssize_t i = 0; i + 2 < PyTuple_GET_SIZE(flat); i += 3) {
    PyObject* hooks = PyDict_GetItemWithError(item(flat, i), item(flat, i + 1));
    if (!hooks || !PyDict_Check(hooks)) return false;
    if (PyDict_GET_SIZE(hooks) == 0) continue;
    PyObject *name, *value;
    Py_ssize_t at = 0;
    while (PyDict_Next(hooks, &at, &name, &value)) {
      const Owned id(PyLong_FromVoidPtr(value));
      if (!id || PySet_Contains(item(flat, i + 2), id.get()) != 1) return false;
    }
  }
  return true;
}

// What follows only fetches. A block's dictionaries and samples of its weights have left the cache when the block is
// called again, because the weights of all the others passed through: one miss after the other would take longer than
// all else that is asked.
constexpr std::size_t kLine = 64;
constexpr Py_ssize_t kMostLines = 10;

void fetch(const void* at, Py_ssize_t lines) {
  for (Py_ssize_t i = 0; i < lines; ++i) __builtin_prefetch(static_cast<const char*>(at) + static_cast<std::size_t>(i) * kLine);
}

void fetch_entries(PyObject* dict) {  // where Python's own header shows them
#ifndef Py_LIMITED_API
  if (!PyDict_Check(dict)) return;
  const auto* found = reinterpret_cast<const PyDictObject*>(dict);
  const Py_ssize_t used = found->ma_used;
  fetch(found->ma_keys, std::min(kMostLines, 2 + used * 26 / 64));  // an entry and its place in the index: 26 bytes
  if (found->ma_values) fetch(found->ma_values, std::min(kMostLines, 1 + used * 8 / 64));
#else
  static_cast<void>(dict);
#endif
}

constexpr Py_ssize_t kStrides[] = {3, 2, 2, 3, 2, 3, 3};
constexpr bool kOfDicts[] = {true, true, false, false, false, true, true};
constexpr Py_ssize_t kOfSources = 4;

void fetch_all(PyObject* groups) {
  const auto each = [groups](Py_ssize_t group, auto&& fetched) {
    PyObject *flat = item(groups, group), *last = nullptr;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(flat); i += kStrides[group]) {
      PyObject* found = item(flat, i);
      if (found != last) fetched(found);
      last = found;
    }
  };
  PyObject* sources = item(groups, kOfSources);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(sources); ++i) fetch(item(sources, i), 1);
  for (Py_ssize_t group = 0; group < PyTuple_GET_SIZE(groups); ++group)
    if (group != kOfSources) each(group, [](PyObject* found) { fetch(found, 1); });
  each(kOfSources, [](PyObject* found) { nb::inst_ptr<Sources>(found)->fetch(); });
  for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(sources); i += 2) fetch_entries(item(sources, i));
  for (Py_ssize_t group = 0; group < PyTuple_GET_SIZE(groups); ++group)
    if (kOfDicts[group]) each(group, fetch_entries);
}

constexpr bool (*kChecks[])(PyObject*) = {entries_hold, absences_hold, types_hold, attributes_hold, sources_hold, entries_hold, hooks_hold};
constexpr Py_ssize_t kGroups = sizeof(kChecks) / sizeof(kChecks[0]);

// first_broken(guards): the index of the first group that does not hold, or -1
PyObject* first_broken(PyObject*, PyObject* groups) {
  if (!PyTuple_Check(groups) || PyTuple_GET_SIZE(groups) != kGroups) {
    PyErr_SetString(PyExc_TypeError, "first_broken: takes a tuple of seven tuples");
    return nullptr;
  }
  fetch_all(groups);
  Py_ssize_t broken = -1;
  for (Py_ssize_t i = 0; i < kGroups && broken < 0; ++i)
    if (!kChecks[i](item(groups, i))) broken = i;
  PyErr_Clear();  // what cannot be asked any more does not hold
  return PyLong_FromSsize_t(broken);
}

PyMethodDef kCallForm = {"call_form", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_form)), METH_FASTCALL, nullptr};
PyMethodDef kFirstBroken = {"first_broken", first_broken, METH_O, nullptr};

}  // namespace

void bind_guard(nb::module_& m) {
  m.attr("call_form") = nb::steal(PyCFunction_New(&kCallForm, nullptr));
  m.attr("first_broken") = nb::steal(PyCFunction_New(&kFirstBroken, nullptr));
}

}  // namespace octavo
