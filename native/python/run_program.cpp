// The call of a program with tensors of PyTorch, without the interpreter: inputs are looked at through DLPack's C
// exchange, outputs made by one method of theirs each. Nothing of PyTorch is compiled in or linked.
#include <initializer_list>
#include <stdexcept>

#include "python/bound_program.h"
#include "python/torch_tensor.h"
#include "runtime/system.h"
#include "runtime/parallel.h"

namespace octavo {
namespace {

constexpr double kLong = 2e4;  // nanoseconds of work from which a call gives up Python's lock

// What is asked of PyTorch, found when the first tensor is given. Held for the life of the process.
struct TensorApi {
  PyObject *tensor, *dtypes[3], *empty, *dtype_name, *data_ptr, *shape, *stride, *dtype;
};

const TensorApi& api() {
  static const TensorApi found = [] {
    const nb::module_ torch = nb::module_::import_("torch");
    const auto kept = [](nb::object object) { return object.release().ptr(); };
    nb::object tensor = torch.attr("Tensor");
    if (!to_dltensor && nb::hasattr(tensor, "__dlpack_c_exchange_api__")) use_exchange(nb::object(tensor.attr("__dlpack_c_exchange_api__")).ptr());
    return TensorApi{kept(tensor),
                     {kept(torch.attr("float32")), kept(torch.attr("bool")), kept(torch.attr("int64"))},
                     PyUnicode_InternFromString("new_empty_strided"),
                     kept(nb::make_tuple("dtype")),
                     PyUnicode_InternFromString("data_ptr"),
                     PyUnicode_InternFromString("shape"),
                     PyUnicode_InternFromString("stride"),
                     PyUnicode_InternFromString("dtype")};
  }();
  return found;
}

[[noreturn]] void refuse(const Program& program, std::size_t input, const std::string& what) {
  throw std::invalid_argument(program.name + ", input " + std::to_string(input) + ": " + what);
}

bool is_type(const nb::dlpack::dtype& type, ValueType wanted) {
  using Code = nb::dlpack::dtype_code;
  const auto is = [&](Code code, int bits) { return type.lanes == 1 && type.code == static_cast<std::uint8_t>(code) && type.bits == bits; };
  switch (wanted) {
    case ValueType::kFloat32: return is(Code::Float, 32);
    case ValueType::kBool: return is(Code::Bool, 8) || is(Code::UInt, 8);
    case ValueType::kInt64: return is(Code::Int, 64);
  }
  return false;
}

// A tensor as a view, by its methods: for a PyTorch without the exchange.
bool view_by_methods(PyObject* tensor, ValueType type, View& v) {
  const TensorApi& torch = api();
  const nb::handle x(tensor);
  if (!x.attr("device").attr("type").equal(nb::str("cpu"))) return false;
  if (!Owned(PyObject_GetAttr(tensor, torch.dtype)).is(torch.dtypes[static_cast<int>(type)])) return false;
  const nb::object shape = x.attr("shape"), strides = x.attr("stride")();
  v.axes = nb::len(shape);
  for (std::size_t i = 0; i < v.axes && i < kMostAxes; ++i) {
    v.sizes[i] = nb::cast<std::size_t>(shape[i]);
    v.strides[i] = nb::cast<std::size_t>(strides[i]);
  }
  v.data = reinterpret_cast<std::uint8_t*>(nb::cast<std::uintptr_t>(x.attr("data_ptr")()));
  return true;
}

// False where the tensor is of another type, or no plain memory of the processor's.
bool view_of(PyObject* tensor, ValueType type, View& v) {
  v.type = type;
  if (!to_dltensor) return view_by_methods(tensor, type, v);
  nb::dlpack::dltensor t;
  if (!view(tensor, t) || !is_type(t.dtype, type)) return false;
  v.axes = static_cast<std::size_t>(t.ndim);
  if (v.axes > kMostAxes) return true;
  std::size_t next = 1;
  for (std::size_t i = v.axes; i-- > 0;) {
    v.sizes[i] = static_cast<std::size_t>(t.shape[i]);
    v.strides[i] = t.strides ? static_cast<std::size_t>(t.strides[i]) : next;
    next *= v.sizes[i];
  }
  v.data = reinterpret_cast<std::uint8_t*>(address(t));
  return true;
}

void read_inputs(Call& call, const nb::tuple& tensors) {
  const Program& program = call.program;
  if (tensors.size() != program.inputs.size())
    throw std::invalid_argument(program.name + ": takes " + std::to_string(program.inputs.size()) + " tensors, not " + std::to_string(tensors.size()));
  for (std::size_t i = 0; i < program.inputs.size(); ++i) {
    const int input = program.inputs[i];
    const Program::Known& known = program.values[static_cast<std::size_t>(input)];
    PyObject* tensor = PyTuple_GET_ITEM(tensors.ptr(), static_cast<Py_ssize_t>(i));
    if (!PyObject_TypeCheck(tensor, reinterpret_cast<PyTypeObject*>(api().tensor))) refuse(program, i, "needs a tensor");
    View& v = call.at(input);
    if (!view_of(tensor, known.type, v)) {
      const nb::object dtype = nb::steal(PyObject_GetAttr(tensor, api().dtype));
      refuse(program, i, "needs a plain tensor of " + std::string(name_of(known.type)) + ", not of " + nb::str(dtype).c_str());
    }
    if (v.axes != known.axes) refuse(program, i, "needs " + std::to_string(known.axes) + " axes, not " + std::to_string(v.axes));
    if (!v.data && v.count()) refuse(program, i, "has no memory");
  }
}

void read_integers(Call& call, const nb::tuple& ints) {
  const Program& program = call.program;
  if (ints.size() != program.given_integers.size())
    throw std::invalid_argument(program.name + ": takes " + std::to_string(program.given_integers.size()) + " integers, not " + std::to_string(ints.size()));
  for (std::size_t i = 0; i < program.given_integers.size(); ++i) {
    const long long found = PyLong_AsLongLong(PyTuple_GET_ITEM(ints.ptr(), static_cast<Py_ssize_t>(i)));
    if (found == -1 && PyErr_Occurred()) throw nb::python_error();
    call.integers[static_cast<std::size_t>(program.given_integers[i])] = found;
  }
}

// By hand: Py_BuildValue reads its format twice, which takes longer.
PyObject* tuple_of(const std::size_t* numbers, std::size_t count) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(count));
  if (!tuple) throw nb::python_error();
  for (std::size_t i = 0; i < count; ++i) PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), PyLong_FromSize_t(numbers[i]));
  return tuple;
}

// An empty tensor of a result's sizes and strides; `like` is one of the inputs, and whether of the result's dtype.
PyObject* new_tensor(PyObject* like, bool alike, View& v) {
  const TensorApi& torch = api();
  const Owned sizes(tuple_of(v.sizes, v.axes)), strides(tuple_of(v.strides, v.axes));
  PyObject* arguments[] = {like, sizes.get(), strides.get(), torch.dtypes[static_cast<int>(v.type)]};
  PyObject* made = PyObject_VectorcallMethod(torch.empty, arguments, 3, alike ? nullptr : torch.dtype_name);
  if (!made) throw nb::python_error();
  View there;
  if (!view_of(made, v.type, there) || !there.same_sizes(v)) {
    Py_DECREF(made);
    throw std::runtime_error("PyTorch made no plain tensor for an output");
  }
  v.data = there.data;
  if (v.bytes() >= kLargeMemory) in_large_pages(v.data, v.bytes());
  return made;
}

nb::tuple make_outputs(Call& call, const nb::tuple& tensors) {
  const Program& program = call.program;
  const nb::tuple outputs = nb::steal<nb::tuple>(PyTuple_New(static_cast<Py_ssize_t>(call.results.size())));
  if (!outputs.is_valid()) throw nb::python_error();
  PyObject* like = tensors.size() ? PyTuple_GET_ITEM(tensors.ptr(), 0) : nullptr;
  if (!like && !call.results.empty()) throw std::invalid_argument(program.name + ": needs a tensor to make outputs like");
  for (std::size_t i = 0; i < call.results.size(); ++i) {
    Call::Result& r = call.results[i];
    const ValueType type = program.values[static_cast<std::size_t>(program.inputs[0])].type;
    const bool alike = r.view.type == type && type != ValueType::kBool;  // which may be a tensor of bytes
    PyTuple_SET_ITEM(outputs.ptr(), static_cast<Py_ssize_t>(i), new_tensor(like, alike, r.view));
  }
  return outputs;
}

}  // namespace

// The vectors of a call, given back at its end.
class BoundProgram::Lent {
 public:
  explicit Lent(BoundProgram& of) : of_(of), call_(of.idle_.exchange(nullptr)) {
    if (!call_) call_ = new Call(of.program);
  }
  ~Lent() { delete of_.idle_.exchange(call_); }
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  Call& operator*() const { return *call_; }

 private:
  BoundProgram& of_;
  Call* call_;
};

nb::object BoundProgram::run(const nb::tuple& tensors, const nb::tuple& ints, int threads) {
  if (!finished) throw std::invalid_argument("the program is not finished");
  const Lent lent(*this);
  Call& call = *lent;
  call.threads = threads > 0 ? threads : num_threads();
  read_inputs(call, tensors);
  read_integers(call, ints);
  call.resolve();
  nb::tuple outputs = make_outputs(call, tensors);
  // Other Python may have run since, and changed what the inputs are. From here on none does.
  for (std::size_t i = 0; i < program.inputs.size(); ++i) {
    View now;
    const View& then = call.at(program.inputs[i]);
    const bool same = view_of(PyTuple_GET_ITEM(tensors.ptr(), static_cast<Py_ssize_t>(i)), then.type, now) && now.data == then.data &&
                      now.same_sizes(then);
    if (!same) refuse(program, i, "was changed while outputs were made");
  }
  {
    const MaybeRelease release(call.work > kLong);
    call.run();
  }
  return outputs;
}

}  // namespace octavo
