#include <nanobind/stl/tuple.h>

#include <tuple>

#include "layers/pack.h"
#include "layers/quantize_weight.h"
#include "python/bind.h"
#include "runtime/checksum.h"

namespace octavo {

using namespace nb::literals;

namespace {

using FloatCube = nb::ndarray<const float, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using FloatVector = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using IntVector = nb::ndarray<std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class Q>
using QCube = nb::ndarray<Q, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

WeightView view(const FloatCube& w) {
  return {w.data(), w.shape(0), w.shape(1), w.shape(2)};
}

std::ptrdiff_t bound_channel_ranges(FloatCube w, FloatVector lo, FloatVector hi) {
  expect(lo.shape(0) == w.shape(1) && hi.shape(0) == w.shape(1),
         "channel_ranges: lo and hi need one element a channel");
  nb::gil_scoped_release release;
  return channel_ranges(view(w), lo.data(), hi.data());
}

void bound_channel_qparams(FloatVector lo, FloatVector hi, int qmin, int qmax, bool symmetric,
                     int zero_point, FloatVector scale, IntVector zero_points) {
  const std::size_t channels = lo.shape(0);
  expect(hi.shape(0) == channels && scale.shape(0) == channels && zero_points.shape(0) == channels,
         "channel_qparams: lo, hi, scale and zero_points need the same length");
  channel_qparams(lo.data(), hi.data(), channels, {qmin, qmax, symmetric, zero_point},
                          scale.data(), zero_points.data());
}

template <class Q>
std::tuple<double, double> bound_quantize_channels(FloatCube w, int qmin, int qmax, FloatVector scale,
                                             IntVector zero_points, QCube<Q> q) {
  expect(scale.shape(0) == w.shape(1) && zero_points.shape(0) == w.shape(1),
         "quantize_channels: scale and zero_points need one element a channel");
  for (int d = 0; d < 3; ++d)
    expect(q.shape(d) == w.shape(d), "quantize_channels: q needs the shape of w");
  nb::gil_scoped_release release;
  const auto stats = quantize_channels<Q>(view(w), {qmin, qmax, true, 0}, scale.data(),
                                                  zero_points.data(), q.data());
  return {stats.signal, stats.noise};
}

std::tuple<double, double> bound_quantize_packed(Array<const float, 2> w, int qmin, int qmax, FloatVector scale,
                                                 IntVector zero_points, Array<std::uint8_t, 1> packed) {
  const std::size_t n = w.shape(0), k = w.shape(1);
  expect(scale.shape(0) == n && zero_points.shape(0) == n, "quantize_packed: scale and zero_points need one element a row");
  expect(packed.shape(0) == packed_bytes(n, k), "quantize_packed: the output has the wrong size");
  const nb::gil_scoped_release release;
  const auto stats = quantize_packed(w.data(), n, k, {qmin, qmax, true, 0}, scale.data(), zero_points.data(),
                                     reinterpret_cast<std::int8_t*>(packed.data()));
  return {stats.signal, stats.noise};
}

}  // namespace

void bind_weights(nb::module_& m) {
  m.def(
      "checksum",
      [](Array<const std::uint8_t, 1> data) {
        const nb::gil_scoped_release release;
        return static_cast<std::int64_t>(checksum(data.data(), data.shape(0)));
      },
      "data"_a);
  m.def("channel_ranges", &bound_channel_ranges, "w"_a, "lo"_a, "hi"_a);
  m.def("channel_qparams", &bound_channel_qparams, "lo"_a, "hi"_a, "qmin"_a, "qmax"_a, "symmetric"_a,
        "zero_point"_a, "scale"_a, "zero_points"_a);
  m.def("quantize_channels", &bound_quantize_channels<std::int8_t>, "w"_a, "qmin"_a, "qmax"_a, "scale"_a,
        "zero_points"_a, "q"_a);
  m.def("quantize_channels", &bound_quantize_channels<std::uint8_t>, "w"_a, "qmin"_a, "qmax"_a, "scale"_a,
        "zero_points"_a, "q"_a);
  m.def("quantize_packed", &bound_quantize_packed, "w"_a, "qmin"_a, "qmax"_a, "scale"_a, "zero_points"_a, "packed"_a);
}

}  // namespace octavo
