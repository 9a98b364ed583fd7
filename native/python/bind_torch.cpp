// docs/notes/torch.md: "The plain call of a linear layer is decided in C++"
// The eager call of a quantized linear layer of PyTorch, without the interpreter.
//
// Between a module's call and the kernel, Python asks a score of questions of a tenth of a microsecond
// each, and twice that after a kernel has had the caches: together more than a small layer. Here the same
// questions are asked through Python's C interface, of the objects that `octavo.torch` hands over, and
// through DLPack's C exchange, which PyTorch has had since 2.10 and which tells all of a tensor's memory at
// once: nothing of PyTorch is compiled in or linked. Where an answer is not the plain one, the call returns
// None, and Python goes the long way.
#include <array>
#include <exception>
#include <initializer_list>
#include <new>
#include <optional>
#include <stdexcept>

#include "python/bound_linear.h"
#include "python/sources.h"
#include "python/torch_process.h"

namespace octavo {
namespace {

// What octavo.torch hands over, by the names of its keyword arguments. Held for the life of the process.
struct Torch {
  PyObject *tensor, *parameter, *module, *module_call, *module_call_impl, *layer, *layer_forward;  // types, and methods as they were made
  PyObject *dispatch_modes, *is_tracing, *functorch_level, *is_grad_enabled, *is_profiling, *is_autocasting, *num_threads;  // functions
  PyObject *state, *forward_ad;                            // dictionaries of modules: `_loads`, `_current_level`
  PyObject *global_hooks;                                  // tuple of dictionaries
  Py_ssize_t large;                                        // elements of an output from which on Python makes it
};
Torch torch{};

std::optional<DType> type_of(const nb::dlpack::dtype& type) {
  if (type.lanes != 1) return std::nullopt;
  const bool is_float = type.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float);
  if (is_float && type.bits == 32) return DType::kFloat32;
  if (is_float && type.bits == 16) return DType::kFloat16;
  if (type.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bfloat) && type.bits == 16) return DType::kBFloat16;
  return std::nullopt;
}

struct Names {
  PyObject *call = intern("__call__"), *forward = intern("forward"), *call_impl = intern("_call_impl"),
           *bound = intern("_bound"), *direct = intern("direct"), *buffers = intern("_buffers"), *loads = intern("_loads"),
           *level = intern("_current_level"), *requires_grad = intern("requires_grad"), *is_neg = intern("is_neg"),
           *empty = intern("new_empty_strided");
  std::array<PyObject*, 4> hooks{intern("_forward_hooks"), intern("_forward_pre_hooks"), intern("_backward_hooks"),
                                 intern("_backward_pre_hooks")};
  std::array<PyObject*, 3> methods{forward, call_impl, intern("_compiled_call_impl")};
  static PyObject* intern(const char* text) { return PyUnicode_InternFromString(text); }
};

const Names& names() {
  static const Names all;
  return all;
}

bool empty_dict(PyObject* object) { return object && PyDict_Check(object) && PyDict_GET_SIZE(object) == 0; }

bool global_hooks() {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(torch.global_hooks); ++i)
    if (!empty_dict(PyTuple_GET_ITEM(torch.global_hooks, i))) return true;
  return false;
}

// nn.Module.__call__ would do nothing but call `forward`, and that is the class's own.
bool plain_module(PyObject* own) {
  const Names& n = names();
  for (PyObject* hooks : n.hooks)
    if (!empty_dict(PyDict_GetItemWithError(own, hooks))) return false;
  if (global_hooks()) return false;
  for (PyObject* replaced : n.methods)
    if (PyDict_GetItemWithError(own, replaced)) return false;
  return Owned(PyObject_GetAttr(torch.module, n.call)).is(torch.module_call) &&
         Owned(PyObject_GetAttr(torch.layer, n.call_impl)).is(torch.module_call_impl) &&
         Owned(PyObject_GetAttr(torch.layer, n.forward)).is(torch.layer_forward);
}

// The kernel that is bound to the buffers as they are, a new reference; null where none is.
PyObject* bound_layer(PyObject* own) {
  const Names& n = names();
  PyObject* bound = PyDict_GetItemWithError(own, n.bound);
  PyObject* entry = bound ? PyDict_GetItemWithError(bound, n.direct) : nullptr;  // (loads, sources, layer)
  PyObject* buffers = PyDict_GetItemWithError(own, n.buffers);
  PyObject* loads = PyDict_GetItemWithError(torch.state, n.loads);
  if (!entry || !buffers || !loads || PyLong_AsLong(PyTuple_GET_ITEM(entry, 0)) != PyLong_AsLong(loads)) return nullptr;
  // Held meanwhile: another thread may bind the layer anew.
  Py_INCREF(entry);
  const Owned held(entry);
  if (!nb::inst_ptr<Sources>(PyTuple_GET_ITEM(entry, 1))->current(buffers)) return nullptr;
  PyObject* layer = PyTuple_GET_ITEM(entry, 2);
  Py_INCREF(layer);
  return layer;
}

bool answers(PyObject* function, PyObject* expected) { return Owned(PyObject_CallNoArgs(function)).is(expected); }

// Nobody traces, transforms or records operators, or lets autocast choose dtypes. False with an error too.
bool plain_modes() {
  const Owned modes(PyObject_CallNoArgs(torch.dispatch_modes));
  if (!modes || PyLong_AsLong(modes.get()) != 0) return false;
  if (!answers(torch.is_tracing, Py_False) || !answers(torch.functorch_level, Py_None)) return false;
  if (!answers(torch.is_autocasting, Py_False)) return false;
  PyObject* level = PyDict_GetItemWithError(torch.forward_ad, names().level);
  return level && PyLong_AsLong(level) < 0;
}

// As octavo.torch.ops.direct, and nobody profiles: who does wants to see modules. False with an error too.
bool plain_tensor(PyObject* x) { return plain_values(x) && plain_modes() && answers(torch.is_profiling, Py_False); }

// What a layer reads of its input: two or three axes, the last of k elements, one behind the other.
struct Input {
  std::int32_t axes;
  Py_ssize_t size[2];  // before the last axis
  DType type;
  std::uintptr_t at;

  Py_ssize_t rows() const { return axes == 2 ? size[0] : size[0] * size[1]; }

  // None where it is not so, or there is nothing at its address: autograd's zeros have no memory.
  static std::optional<Input> of(PyObject* x, std::size_t k) {
    nb::dlpack::dltensor t;
    if (!view(x, t) || (t.ndim != 2 && t.ndim != 3)) return std::nullopt;
    const std::optional<DType> type = type_of(t.dtype);
    if (!type || t.shape[t.ndim - 1] != static_cast<std::int64_t>(k) || !contiguous(t)) return std::nullopt;
    const Input found{t.ndim, {t.shape[0], t.ndim == 3 ? t.shape[1] : 1}, *type, address(t)};
    if (found.at == 0 && found.rows() > 0 && k > 0) return std::nullopt;
    return found;
  }
  bool alike(const Input& o) const { return axes == o.axes && size[0] == o.size[0] && size[1] == o.size[1] && type == o.type; }
};

// By hand: Py_BuildValue reads its format twice, which takes longer.
PyObject* tuple_of(std::initializer_list<Py_ssize_t> sizes) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(sizes.size()));
  if (!tuple) return nullptr;
  Py_ssize_t at = 0;
  for (const Py_ssize_t size : sizes) {
    PyObject* number = PyLong_FromSsize_t(size);
    if (!number) {
      Py_DECREF(tuple);
      return nullptr;
    }
    PyTuple_SET_ITEM(tuple, at++, number);
  }
  return tuple;
}

// An empty tensor of x's shape and dtype, but with n columns.
PyObject* output(PyObject* x, const Input& in, Py_ssize_t columns) {
  const bool flat = in.axes == 2;
  const Owned shape(flat ? tuple_of({in.size[0], columns}) : tuple_of({in.size[0], in.size[1], columns}));
  const Owned strides(flat ? tuple_of({columns, 1}) : tuple_of({in.size[1] * columns, columns, 1}));
  if (!shape || !strides) return nullptr;
  PyObject* arguments[] = {x, shape.get(), strides.get()};
  return PyObject_VectorcallMethod(names().empty, arguments, 3, nullptr);
}

// Null with an error, None where Python has to do it, or the outputs.
PyObject* run(const BoundLinear& bound, PyObject* x) {
  const Weight& w = bound.layer.weight;
  const auto columns = static_cast<Py_ssize_t>(w.n);
  const std::optional<Input> asked = Input::of(x, w.k);
  if (!asked || asked->rows() * columns >= torch.large) Py_RETURN_NONE;
  const Owned threads(PyObject_CallNoArgs(torch.num_threads));
  if (!threads) return nullptr;
  const Owned out(output(x, *asked, columns));
  if (!out) return nullptr;
  const auto used = static_cast<int>(PyLong_AsLong(threads.get()));
  if (PyErr_Occurred()) return nullptr;
  // Other Python may have run since, and moved what x holds. From here on none does.
  const std::optional<Input> in = Input::of(x, w.k);
  nb::dlpack::dltensor made;
  if (!in || !in->alike(*asked) || !view(out.get(), made)) Py_RETURN_NONE;
  bound.run(in->at, static_cast<std::size_t>(in->rows()), w.k, address(made), w.n, static_cast<int>(in->type), 0, 0, used);
  Py_INCREF(out.get());
  return out.get();
}

// call_linear(module, args, kwargs)
PyObject* call_linear(PyObject*, PyObject* const* given, Py_ssize_t count) {
  if (count != 3 || !to_dltensor || !PyTuple_Check(given[1]) || !PyDict_Check(given[2])) Py_RETURN_NONE;
  if (PyTuple_GET_SIZE(given[1]) != 1 || PyDict_GET_SIZE(given[2]) != 0) Py_RETURN_NONE;
  PyObject* x = PyTuple_GET_ITEM(given[1], 0);
  if (reinterpret_cast<PyObject*>(Py_TYPE(x)) != torch.tensor ||
      reinterpret_cast<PyObject*>(Py_TYPE(given[0])) != torch.layer)
    Py_RETURN_NONE;
  const Owned own(PyObject_GenericGetDict(given[0], nullptr));
  if (!own) return nullptr;
  // Held while the kernel runs: other threads may load or move the layer's buffers meanwhile.
  const Owned layer(plain_module(own.get()) && plain_tensor(x) ? bound_layer(own.get()) : nullptr);
  if (PyErr_Occurred()) return nullptr;
  if (!layer) Py_RETURN_NONE;
  try {
    return run(*nb::inst_ptr<BoundLinear>(layer.get()), x);
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  } catch (const std::invalid_argument& error) {  // OCTAVO_ISA names none that there is
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

PyMethodDef kCallLinear = {"call_linear", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_linear)), METH_FASTCALL, nullptr};

PyObject* kept(nb::handle object) { return object.inc_ref().ptr(); }

}  // namespace

PyObject* tensor_type() { return torch.tensor; }

bool is_tensor(PyObject* value) {
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(value));
  return type == torch.tensor || type == torch.parameter;
}

bool plain_process() {
  if (!to_dltensor || global_hooks()) return false;
  return Owned(PyObject_GetAttr(torch.module, names().call)).is(torch.module_call) && plain_modes();
}

bool plain_values(PyObject* x) {
  const Owned wants_gradient(PyObject_GetAttr(x, names().requires_grad));
  if (!wants_gradient || (!wants_gradient.is(Py_False) && !answers(torch.is_grad_enabled, Py_False))) return false;
  return Owned(PyObject_CallMethodNoArgs(x, names().is_neg)).is(Py_False);
}

void bind_torch(nb::module_& m) {
  using namespace nb::literals;
  m.def(
      "use_torch",
      [](nb::type_object tensor, nb::type_object parameter, nb::type_object module, nb::object module_call, nb::object module_call_impl, nb::type_object layer, nb::object layer_forward, nb::object dispatch_modes,
         nb::object is_tracing, nb::object functorch_level, nb::object is_grad_enabled, nb::object is_profiling, nb::object is_autocasting, nb::object num_threads, nb::dict state,
         nb::dict forward_ad, nb::tuple global_hooks, Py_ssize_t large, nb::object exchange) {
        torch = {kept(tensor), kept(parameter), kept(module), kept(module_call), kept(module_call_impl), kept(layer), kept(layer_forward), kept(dispatch_modes), kept(is_tracing),
                 kept(functorch_level), kept(is_grad_enabled), kept(is_profiling), kept(is_autocasting), kept(num_threads), kept(state), kept(forward_ad), kept(global_hooks), large};
        use_exchange(exchange.ptr());
      },
      nb::kw_only(), "tensor"_a, "parameter"_a, "module"_a, "module_call"_a, "module_call_impl"_a, "layer"_a, "layer_forward"_a, "dispatch_modes"_a, "is_tracing"_a, "functorch_level"_a,
      "is_grad_enabled"_a, "is_profiling"_a, "is_autocasting"_a, "num_threads"_a, "state"_a, "forward_ad"_a, "global_hooks"_a, "large"_a, "exchange"_a.none());
  m.attr("call_linear") = nb::steal(PyCFunction_New(&kCallLinear, nullptr));
}

}  // namespace octavo
