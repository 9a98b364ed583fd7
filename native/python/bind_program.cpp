#include "python/bound_program.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "layers/program_elements.h"
#include "layers/program_layers.h"
#include "layers/program_rows.h"
#include "layers/program_views.h"

namespace octavo {

using namespace nb::literals;

namespace {

// Adds a step that makes one value.
template <class S, class... Arguments>
void add(BoundProgram& p, Arguments&&... arguments) {
  p.program.add(std::make_unique<S>(std::forward<Arguments>(arguments)...));
}

int value(BoundProgram& p, int type) { return p.program.value(static_cast<ValueType>(type)); }
int float_value(BoundProgram& p) { return p.program.value(ValueType::kFloat32); }

std::vector<int> add_linear(BoundProgram& p, int x, const nb::list& layers, const std::vector<int>& activations, int residual, bool gated,
                            std::vector<int> span, const std::vector<int>& norm, float eps) {
  LinearStep::Parts parts{x, {}, {}, residual, gated, {}, float_value(p), float_value(p), std::move(span), {}};
  expect(norm.empty() || norm.size() == 4, "linear: a norm is its kind, weight, bias, and whether its rows are kept");
  if (!norm.empty()) parts.norm = {true, static_cast<Norm>(norm[0]), norm[1], norm[2], eps, norm[3] ? float_value(p) : -1};
  for (const nb::handle layer : layers) {
    parts.layers.push_back(&nb::cast<const BoundLinear&>(layer).layer);
    p.held.push_back(nb::borrow(layer));
  }
  for (const int activation : activations) parts.activations.push_back(static_cast<Activation>(activation));
  const std::size_t made = gated ? 1 : parts.layers.size();
  expect(!parts.layers.empty() && parts.layers.size() <= 8 && (!gated || parts.layers.size() == 2), "linear: wrong number of layers");
  expect(parts.activations.size() == made, "linear: one activation a result");
  for (const Linear* layer : parts.layers)
    expect(layer->takes_rows_of(*parts.layers[0]) && (!gated || layer->weight.n == parts.layers[0]->weight.n),
           "linear: layers over one input have the same number of inputs and the same groups, and those of a gate the same number of outputs");
  for (std::size_t i = 0; i < made; ++i) parts.made.push_back(float_value(p));
  std::vector<int> found = parts.made;
  if (parts.norm.made >= 0) found.push_back(parts.norm.made);
  add<LinearStep>(p, std::move(parts));
  return found;
}

std::vector<int> add_norm(BoundProgram& p, int kind, int x, int residual, int weight, int bias, float eps) {
  const int sum = residual >= 0 ? float_value(p) : -1, made = float_value(p);
  add<NormStep>(p, NormStep::Parts{static_cast<Norm>(kind), x, residual, weight, bias, eps, sum, made, float_value(p), float_value(p)});
  return residual >= 0 ? std::vector<int>{sum, made} : std::vector<int>{made};
}

int add_attention(BoundProgram& p, int q, int k, int v, float scale, int bias, int mask, bool causal, int offset, int window, float softcap,
                  bool bfloat16) {
  const int made = float_value(p);
  add<AttentionStep>(p, AttentionStep::Parts{q, k, v, scale, bias, mask, causal, offset, window, softcap, bfloat16, made, float_value(p), float_value(p), float_value(p)});
  return made;
}

int add_rotary(BoundProgram& p, int x, int cos, int sin, bool interleaved) {
  const int made = float_value(p);
  add<RotaryStep>(p, RotaryStep::Parts{x, cos, sin, interleaved, made, float_value(p), float_value(p), float_value(p)});
  return made;
}

// The families of element functions, by the enums' own numbers.
template <class Op>
auto of_one(std::unique_ptr<Step> (*step)(Op, int, int), ValueType type) {
  return [step, type](BoundProgram& p, int op, int x) {
    const int made = p.program.value(type);
    p.program.add(step(static_cast<Op>(op), x, made));
    return made;
  };
}
template <class Op>
auto of_two(std::unique_ptr<Step> (*step)(Op, int, int, int), ValueType type) {
  return [step, type](BoundProgram& p, int op, int a, int b) {
    const int made = p.program.value(type);
    p.program.add(step(static_cast<Op>(op), a, b, made));
    return made;
  };
}

void bind_values(nb::class_<BoundProgram>& c) {
  c.def("input", [](BoundProgram& p, int type, std::size_t axes) { return p.program.input(static_cast<ValueType>(type), axes); }, "dtype"_a, "axes"_a)
      .def("input_integer", [](BoundProgram& p) { return p.program.input_integer(); })
      .def("literal", [](BoundProgram& p, std::int64_t size) { return p.program.literal(size); }, "size"_a)
      .def("scalar", [](BoundProgram& p, float found) { return p.program.scalar(found); }, "value"_a)
      .def(
          "constant",
          [](BoundProgram& p, int type, std::uintptr_t address, const std::vector<std::size_t>& sizes) {
            return p.program.constant(static_cast<ValueType>(type), pointer<const void>(address), sizes);
          },
          "dtype"_a, "address"_a, "sizes"_a)
      .def("output", [](BoundProgram& p, int which) { p.program.output(which); }, "value"_a)
      .def(
          "finish",
          [](BoundProgram& p, const std::string& name) {
            expect(!p.finished, "the program is finished already");
            p.program.finish(name);
            p.finished = true;
          },
          "name"_a)
      .def("__call__", &BoundProgram::run, "tensors"_a, "ints"_a, "threads"_a);
}

void bind_views(nb::class_<BoundProgram>& c) {
  c.def(
       "size",
       [](BoundProgram& p, int of, std::size_t axis) {
         const int made = p.program.size();
         add<SizeOf>(p, of, axis, made);
         return made;
       },
       "value"_a, "axis"_a)
      .def(
          "compute",
          [](BoundProgram& p, int op, int a, int b) {
            const int made = p.program.size();
            add<ComputeSize>(p, static_cast<Arithmetic>(op), a, b, made);
            return made;
          },
          "op"_a, "a"_a, "b"_a)
      .def(
          "reshape",
          [](BoundProgram& p, int type, int source, std::vector<int> sizes) {
            const int made = value(p, type);
            add<Reshape>(p, source, made, std::move(sizes));
            return made;
          },
          "dtype"_a, "source"_a, "sizes"_a)
      .def(
          "contiguous",
          [](BoundProgram& p, int type, int source) {
            const int made = value(p, type);
            add<Contiguous>(p, source, made);
            return made;
          },
          "dtype"_a, "source"_a)
      .def(
          "permute",
          [](BoundProgram& p, int type, int source, std::vector<std::size_t> axes) {
            const int made = value(p, type);
            add<Permute>(p, source, made, std::move(axes));
            return made;
          },
          "dtype"_a, "source"_a, "axes"_a)
      .def(
          "slice",
          [](BoundProgram& p, int type, int source, std::size_t axis, int start, int stop, int step) {
            const int made = value(p, type);
            add<Slice>(p, source, made, axis, start, stop, step);
            return made;
          },
          "dtype"_a, "source"_a, "axis"_a, "start"_a, "stop"_a, "step"_a)
      .def(
          "expand",
          [](BoundProgram& p, int type, int source, std::vector<int> sizes) {
            const int made = value(p, type);
            add<Expand>(p, source, made, std::move(sizes));
            return made;
          },
          "dtype"_a, "source"_a, "sizes"_a)
      .def(
          "unsqueeze",
          [](BoundProgram& p, int type, int source, std::size_t axis) {
            const int made = value(p, type);
            add<Unsqueeze>(p, source, made, axis);
            return made;
          },
          "dtype"_a, "source"_a, "axis"_a)
      .def(
          "squeeze",
          [](BoundProgram& p, int type, int source, std::size_t axis) {
            const int made = value(p, type);
            add<Squeeze>(p, source, made, axis);
            return made;
          },
          "dtype"_a, "source"_a, "axis"_a);
}

void bind_elements(nb::class_<BoundProgram>& c) {
  c.def("unary", of_one<Unary>(unary_step, ValueType::kFloat32), "op"_a, "x"_a)
      .def("slow_unary", of_one<Slow>(slow_step, ValueType::kFloat32), "op"_a, "x"_a)
      .def("binary", of_two<Binary>(binary_step, ValueType::kFloat32), "op"_a, "a"_a, "b"_a)
      .def("compare", of_two<Compare>(compare_step, ValueType::kBool), "op"_a, "a"_a, "b"_a)
      .def("logic", of_two<Logic>(logic_step, ValueType::kBool), "op"_a, "a"_a, "b"_a)
      .def("integers", of_two<Integer>(integer_step, ValueType::kInt64), "op"_a, "a"_a, "b"_a)
      .def(
          "logical_not",
          [](BoundProgram& p, int x) {
            const int made = p.program.value(ValueType::kBool);
            p.program.add(not_step(x, made));
            return made;
          },
          "x"_a)
      .def(
          "power",
          [](BoundProgram& p, int x, float exponent) {
            const int made = float_value(p);
            p.program.add(power_step(x, exponent, made));
            return made;
          },
          "x"_a, "exponent"_a)
      .def(
          "cast",
          [](BoundProgram& p, int type, int x) {
            const int made = value(p, type);
            p.program.add(convert_step(x, made));
            return made;
          },
          "dtype"_a, "x"_a)
      .def(
          "where",
          [](BoundProgram& p, int type, int condition, int a, int b) {
            const int made = value(p, type);
            p.program.add(where_step(condition, a, b, made));
            return made;
          },
          "dtype"_a, "condition"_a, "a"_a, "b"_a);
}

void bind_rows(nb::class_<BoundProgram>& c) {
  c.def("linear", &add_linear, "x"_a, "layers"_a, "activations"_a, "residual"_a, "gated"_a, "span"_a, "norm"_a, "eps"_a)
      .def("norm", &add_norm, "kind"_a, "x"_a, "residual"_a, "weight"_a, "bias"_a, "eps"_a)
      .def("attention", &add_attention, "q"_a, "k"_a, "v"_a, "scale"_a, "bias"_a, "mask"_a, "causal"_a, "offset"_a, "window"_a, "softcap"_a,
           "bfloat16"_a)
      .def("rotary", &add_rotary, "x"_a, "cos"_a, "sin"_a, "interleaved"_a)
      .def(
          "softmax",
          [](BoundProgram& p, int x) {
            const int made = float_value(p);
            add<SoftmaxStep>(p, x, float_value(p), made);
            return made;
          },
          "x"_a)
      .def(
          "sum",
          [](BoundProgram& p, int x, bool mean, bool keepdim) {
            const int made = float_value(p);
            add<SumStep>(p, x, float_value(p), mean, keepdim, made);
            return made;
          },
          "x"_a, "mean"_a, "keepdim"_a)
      .def(
          "matmul",
          [](BoundProgram& p, int a, int b) {
            const int made = float_value(p);
            add<MatMulStep>(p, a, b, made);
            return made;
          },
          "a"_a, "b"_a)
      .def(
          "cat",
          [](BoundProgram& p, int type, std::vector<int> values, std::size_t axis) {
            const int made = value(p, type);
            add<CatStep>(p, std::move(values), axis, made);
            return made;
          },
          "dtype"_a, "values"_a, "axis"_a)
      .def("copy_to", [](BoundProgram& p, int from, int into) { add<CopyTo>(p, from, into); }, "source"_a, "into"_a)
      .def("index_copy", [](BoundProgram& p, int x, int into, std::size_t axis, int index) { add<TakeStep>(p, x, axis, index, -1, into); }, "x"_a, "into"_a,
           "axis"_a, "index"_a)
      .def(
          "take",
          [](BoundProgram& p, int type, int x, std::size_t axis, int index) {
            const int made = value(p, type);
            add<TakeStep>(p, x, axis, index, made, -1);
            return made;
          },
          "dtype"_a, "x"_a, "axis"_a, "index"_a)
      .def(
          "gather",
          [](BoundProgram& p, int type, int x, std::size_t axis, int index) {
            const int made = value(p, type);
            add<GatherStep>(p, x, axis, index, made);
            return made;
          },
          "dtype"_a, "x"_a, "axis"_a, "index"_a)
      .def(
          "gathered_product",
          [](BoundProgram& p, int a, int table, int index, bool transposed) {
            const int made = float_value(p);
            add<GatheredProductStep>(p, a, table, index, transposed, made);
            return made;
          },
          "a"_a, "table"_a, "index"_a, "transposed"_a)
      .def(
          "embedding",
          [](BoundProgram& p, int type, int table, int index) {
            const int made = value(p, type);
            add<EmbeddingStep>(p, table, index, made);
            return made;
          },
          "dtype"_a, "table"_a, "index"_a)
      .def(
          "arange",
          [](BoundProgram& p, int stop) {
            const int made = p.program.value(ValueType::kInt64);
            add<ArangeStep>(p, stop, made);
            return made;
          },
          "stop"_a)
      .def(
          "integer",
          [](BoundProgram& p, int size) {
            const int made = p.program.value(ValueType::kInt64);
            add<IntegerStep>(p, size, made);
            return made;
          },
          "size"_a);
}

}  // namespace

void bind_program(nb::module_& m) {
  auto c = nb::class_<BoundProgram>(m, "Program").def(nb::init<>());
  bind_values(c);
  bind_views(c);
  bind_elements(c);
  bind_rows(c);
}

}  // namespace octavo
