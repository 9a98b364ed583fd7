#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>

#include "cpu.h"
#include "quantize_weight.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using FloatCube = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using FloatVector = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using IntVector = nb::ndarray<std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class Q>
using QCube = nb::ndarray<Q, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

octavo::WeightView view(const FloatCube& w) {
  return {w.data(), w.shape(0), w.shape(1), w.shape(2)};
}

void expect(bool condition, const std::string& what) {
  if (!condition) throw nb::value_error(what.c_str());
}

std::ptrdiff_t channel_ranges(FloatCube w, FloatVector lo, FloatVector hi) {
  expect(lo.shape(0) == w.shape(1) && hi.shape(0) == w.shape(1),
         "channel_ranges: lo and hi need one element a channel");
  nb::gil_scoped_release release;
  return octavo::channel_ranges(view(w), lo.data(), hi.data());
}

void channel_qparams(FloatVector lo, FloatVector hi, int qmin, int qmax, bool symmetric,
                     int zero_point, FloatVector scale, IntVector zero_points) {
  const std::size_t channels = lo.shape(0);
  expect(hi.shape(0) == channels && scale.shape(0) == channels && zero_points.shape(0) == channels,
         "channel_qparams: lo, hi, scale and zero_points need the same length");
  octavo::channel_qparams(lo.data(), hi.data(), channels, {qmin, qmax, symmetric, zero_point},
                          scale.data(), zero_points.data());
}

template <class Q>
std::tuple<double, double> quantize_channels(FloatCube w, int qmin, int qmax, FloatVector scale,
                                             IntVector zero_points, QCube<Q> q) {
  expect(scale.shape(0) == w.shape(1) && zero_points.shape(0) == w.shape(1),
         "quantize_channels: scale and zero_points need one element a channel");
  for (int d = 0; d < 3; ++d)
    expect(q.shape(d) == w.shape(d), "quantize_channels: q needs the shape of w");
  nb::gil_scoped_release release;
  const auto stats = octavo::quantize_channels<Q>(view(w), {qmin, qmax, true, 0}, scale.data(),
                                                  zero_points.data(), q.data());
  return {stats.signal, stats.noise};
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "Octavo's C++ core. Use it through octavo.core.kernels, which checks and documents.";
  m.def("cpu_features", &octavo::cpu_features);
  m.def("channel_ranges", &channel_ranges, "w"_a, "lo"_a, "hi"_a);
  m.def("channel_qparams", &channel_qparams, "lo"_a, "hi"_a, "qmin"_a, "qmax"_a, "symmetric"_a,
        "zero_point"_a, "scale"_a, "zero_points"_a);
  m.def("quantize_channels", &quantize_channels<std::int8_t>, "w"_a, "qmin"_a, "qmax"_a, "scale"_a,
        "zero_points"_a, "q"_a);
  m.def("quantize_channels", &quantize_channels<std::uint8_t>, "w"_a, "qmin"_a, "qmax"_a, "scale"_a,
        "zero_points"_a, "q"_a);
}
