#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "python/bound_linear.h"

namespace octavo {

using namespace nb::literals;

namespace {

void run_together(const std::vector<const BoundLinear*>& layers, std::uintptr_t x, int x_type, std::size_t rows,
                  std::size_t x_stride, const std::vector<std::uintptr_t>& outs, int out_type,
                  const std::vector<std::size_t>& out_strides, int threads) {
  expect(!layers.empty() && outs.size() == layers.size() && out_strides.size() == layers.size(),
         "run_together: one output and one stride a layer");
  std::vector<const Linear*> parts;
  std::vector<Output> outputs;
  double work = 0.0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const Linear& layer = layers[i]->layer;
    expect(layer.takes_rows_of(layers[0]->layer),
           "run_together: layers over one input have the same number of inputs and the same groups");
    parts.push_back(&layer);
    outputs.push_back({pointer<void>(outs[i]), static_cast<DType>(out_type), out_strides[i], nullptr, 0});
    work += layers[i]->work(rows);
  }
  const MaybeRelease release(work > kLongWork);
  linear(parts.data(), parts.size(), {pointer<const void>(x), static_cast<DType>(x_type), rows, x_stride, nullptr, nullptr},
         outputs.data(), threads > 0 ? threads : num_threads());
}

void run_gated(const BoundLinear& first, int activation, const BoundLinear& second, std::uintptr_t x, std::size_t rows,
               std::size_t x_stride, std::uintptr_t out, std::size_t out_stride, int threads) {
  const Weight &a = first.layer.weight, &b = second.layer.weight;
  expect(a.n == b.n && first.layer.takes_rows_of(second.layer),
         "run_gated: both layers have the same numbers of inputs and outputs and the same groups");
  const MaybeRelease release(2 * first.work(rows) > kLongWork);
  gated_linear(first.layer, static_cast<Activation>(activation), second.layer, {pointer<const void>(x), DType::kFloat32, rows, x_stride, nullptr, nullptr},
               {pointer<void>(out), DType::kFloat32, out_stride, nullptr, 0}, threads > 0 ? threads : num_threads());
}

// The format of that name, where the arrays are as it wants them.
template <class Integers, class Scales, class Zeros>
WeightFormat checked_groups(const Integers& q, const Scales& scale, const std::optional<Zeros>& zero, std::size_t bytes, const std::string& name) {
  const WeightFormat format = weight_format(name);
  expect(format.group != 0, name + ": has no groups");
  const std::size_t n = q.shape(0), k = q.shape(1), groups = format.groups(k);
  expect(bytes == packed_bytes(n, k, format), name + ": packed has the wrong size");
  expect(scale.shape(0) == n && scale.shape(1) == groups, name + ": scale needs shape [n, groups]");
  expect(zero.has_value() == (format.zero_bytes() > 0) && (!zero || (zero->shape(0) == n && zero->shape(1) == groups * format.zero_bytes())),
         name + ": zero goes with affine formats, [n, groups], and minima as bytes");
  return format;
}

}  // namespace

void bind_linear(nb::module_& m) {
  m.def(
      "packed_bytes", [](std::size_t n, std::size_t k, const std::string& format) { return packed_bytes(n, k, weight_format(format)); },
      "n"_a, "k"_a, "weight_format"_a = "int8");
  m.def(
      "pack",
      [](Array<const std::int8_t, 2> q, Array<std::uint8_t, 1> packed) {
        expect(packed.shape(0) == packed_bytes(q.shape(0), q.shape(1)), "pack: the output has the wrong size");
        const nb::gil_scoped_release release;
        pack(q.data(), q.shape(0), q.shape(1), q.shape(1), reinterpret_cast<std::int8_t*>(packed.data()));
      },
      "q"_a, "packed"_a);
  m.def(
      "unpack",
      [](Packed packed, Array<std::int8_t, 2> q) {
        expect(packed.shape(0) == packed_bytes(q.shape(0), q.shape(1)), "unpack: the input has the wrong size");
        const nb::gil_scoped_release release;
        unpack(reinterpret_cast<const std::int8_t*>(packed.data()), q.shape(0), q.shape(1), q.shape(1), q.data());
      },
      "packed"_a, "q"_a);
  m.def(
      "pack_groups",
      [](Array<const std::uint8_t, 2> q, Array<const std::uint16_t, 2> scale, std::optional<Array<const std::uint8_t, 2>> zero,
         Array<std::uint8_t, 1> packed, const std::string& name) {
        const WeightFormat format = checked_groups(q, scale, zero, packed.shape(0), name);
        const nb::gil_scoped_release release;
        pack_groups({q.data(), scale.data(), zero ? zero->data() : nullptr}, q.shape(0), q.shape(1), format, reinterpret_cast<std::int8_t*>(packed.data()));
      },
      "q"_a, "scale"_a, "zero"_a.none(), "packed"_a, "weight_format"_a);
  m.def(
      "unpack_groups",
      [](Packed packed, Array<std::uint8_t, 2> q, Array<std::uint16_t, 2> scale, std::optional<Array<std::uint8_t, 2>> zero, const std::string& name) {
        const WeightFormat format = checked_groups(q, scale, zero, packed.shape(0), name);
        const nb::gil_scoped_release release;
        unpack_groups(reinterpret_cast<const std::int8_t*>(packed.data()), q.shape(0), q.shape(1), format, {q.data(), scale.data(), zero ? zero->data() : nullptr});
      },
      "packed"_a, "q"_a, "scale"_a, "zero"_a.none(), "weight_format"_a);
  m.def(
      "quantize_rows",
      [](std::uintptr_t x, int x_type, std::size_t rows, std::size_t k, std::size_t x_stride, std::size_t group,
         Array<std::uint8_t, 2> q, Array<float, 2> scale, Array<std::int32_t, 2> zero_point) {
        expect(q.shape(0) == rows && q.shape(1) == k && scale.shape(0) == rows && zero_point.shape(0) == rows &&
                   scale.shape(1) == zero_point.shape(1) && scale.shape(1) == groups_of(k, group),
               "quantize_rows: outputs have the wrong shapes");
        const nb::gil_scoped_release release;
        quantize_rows({pointer<const void>(x), static_cast<DType>(x_type), rows, x_stride, nullptr, nullptr}, k, group,
                      q.data(), k, scale.data(), zero_point.data());
      },
      "x"_a, "x_type"_a, "rows"_a, "k"_a, "x_stride"_a, "group"_a, "q"_a, "scale"_a, "zero_point"_a);
  nb::class_<BoundLinear>(m, "Linear")
      .def(nb::init<Packed, std::size_t, std::size_t, std::size_t, Array<const float, 1>,
                    std::optional<Array<const std::int32_t, 1>>, std::optional<Array<const float, 1>>, int, bool, const std::string&>(),
           "packed"_a, "n"_a, "k"_a, "group"_a, "scale"_a, "zero"_a.none(), "bias"_a.none(), "activation"_a, "live"_a = false, "weight_format"_a = "int8")
      .def_static("reads_live", &BoundLinear::reads_live, "n"_a)
      .def("run", &BoundLinear::run, "x"_a, "rows"_a, "x_stride"_a, "out"_a, "out_stride"_a, "dtype"_a = 0,
           "residual"_a = 0, "residual_stride"_a = 0, "threads"_a = 0)
      .def("run_quantized", &BoundLinear::run_quantized, "q"_a, "rows"_a, "q_stride"_a, "scale"_a, "zero_point"_a,
           "out"_a, "out_type"_a, "out_stride"_a, "residual"_a, "residual_stride"_a, "threads"_a);
  m.def("run_together", &run_together, "layers"_a, "x"_a, "x_type"_a, "rows"_a, "x_stride"_a, "outs"_a, "out_type"_a,
        "out_strides"_a, "threads"_a);
  m.def("run_gated", &run_gated, "first"_a, "activation"_a, "second"_a, "x"_a, "rows"_a, "x_stride"_a, "out"_a, "out_stride"_a, "threads"_a);
}

}  // namespace octavo
