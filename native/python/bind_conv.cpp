#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <array>
#include <optional>

#include "layers/conv.h"
#include "layers/pack.h"
#include "python/bind.h"
#include "runtime/parallel.h"

namespace octavo {

using namespace nb::literals;

namespace {

using Pair = std::array<std::size_t, 2>;
using Packed = Array<const std::uint8_t, 1>;

ConvShape shape_of(std::size_t out, std::size_t in, std::size_t groups, const Pair& kernel, const Pair& stride,
                   const Pair& dilation, const Pair& before, const Pair& after, const Pair& pool) {
  ConvShape s{out, in, groups, {}, {}, {}, {}, {}};
  expect(groups > 0 && in % groups == 0 && out % groups == 0, "Conv: groups must divide both numbers of channels");
  for (std::size_t i = 0; i < 2; ++i) {
    expect(kernel[i] > 0 && stride[i] > 0 && dilation[i] > 0, "Conv: kernel, stride and dilation are 1 or more");
    s.kernel[i] = kernel[i];
    s.stride[i] = stride[i];
    s.dilation[i] = dilation[i];
    s.before[i] = before[i];
    s.after[i] = after[i];
    s.pool[i] = pool[i];
  }
  expect(pool[0] > 0 && pool[1] > 0 && pool[0] <= kMostPool && pool[1] <= kMostPool && s.pool_area() <= kMostPool,
         "pool: " + std::to_string(pool[0]) + " x " + std::to_string(pool[1]) + " results; a pool has " + std::to_string(kMostPool) +
             " at most, both axes together");
  expect(s.pool_area() == 1 || !s.depthwise(), "pool: filters of one channel and up to 512 taps have none; leave it at 1");
  return s;
}

// A layer with the packed weights that it refers to: any object with a buffer, a mapped file included.
struct BoundConv {
  Packed packed;
  Conv layer;

  BoundConv(const ConvShape& shape, Packed data, Array<const float, 1> scale,
            const std::optional<Array<const float, 1>>& bias, int activation, const std::string& format)
      : packed(std::move(data)),
        layer(shape, checked(shape, packed, weight_format(format), scale.shape(0) == shape.out && (!bias || bias->shape(0) == shape.out)),
              scale.data(), bias ? bias->data() : nullptr, static_cast<Activation>(activation)) {}

  static PackedData checked(const ConvShape& shape, const Packed& data, WeightFormat format, bool vectors) {
    expect(!format.group, "Conv: weights in groups are for linear layers");
    const PackedData found = packed_data(data, conv_packed_bytes(shape), format, "Conv");
    expect(vectors, "Conv: scale and bias need one element an output channel");
    return found;
  }

  void run(std::uintptr_t x, std::size_t n, std::size_t h, std::size_t w, std::uintptr_t out, int threads) const {
    const ConvShape& s = layer.shape;
    const double outputs = static_cast<double>(n * s.out) * static_cast<double>(s.output(0, h) * s.output(1, w));
    const MaybeRelease release(outputs * static_cast<double>(s.k()) > kLongWork);
    conv(layer, {pointer<const float>(x), n, h, w, pointer<float>(out)}, threads > 0 ? threads : num_threads());
  }
};

}  // namespace

void bind_conv(nb::module_& m) {
  m.attr("MOST_POOL") = kMostPool;
  nb::class_<ConvShape>(m, "ConvShape")
      .def(
          "__init__",
          [](ConvShape* to, std::size_t out, std::size_t in, std::size_t groups, const Pair& kernel, const Pair& stride,
             const Pair& dilation, const Pair& before, const Pair& after, const Pair& pool) {
            new (to) ConvShape(shape_of(out, in, groups, kernel, stride, dilation, before, after, pool));
          },
          "out"_a, "in_"_a, "groups"_a, "kernel"_a, "stride"_a, "dilation"_a, "before"_a, "after"_a, "pool"_a)
      .def(
          "pooled",
          [](const ConvShape& s, std::size_t h, std::size_t w) { return Pair{s.pooled(0, h), s.pooled(1, w)}; },
          "h"_a, "w"_a)
      .def("packed_bytes", &conv_packed_bytes)
      .def(
          "pack",
          [](const ConvShape& s, Array<const std::int8_t, 4> q, Array<std::uint8_t, 1> packed) {
            expect(q.shape(0) == s.out && q.shape(1) == s.group_in() && q.shape(2) == s.kernel[0] &&
                       q.shape(3) == s.kernel[1],
                   "ConvShape.pack: the weight has another shape");
            expect(packed.shape(0) == conv_packed_bytes(s), "ConvShape.pack: the output has the wrong size");
            const nb::gil_scoped_release release;
            conv_pack(s, q.data(), reinterpret_cast<std::int8_t*>(packed.data()));
          },
          "q"_a, "packed"_a);
  nb::class_<BoundConv>(m, "Conv")
      .def(nb::init<const ConvShape&, Packed, Array<const float, 1>, std::optional<Array<const float, 1>>, int, const std::string&>(),
           "shape"_a, "packed"_a, "scale"_a, "bias"_a.none(), "activation"_a, "weight_format"_a = "int8")
      .def("run", &BoundConv::run, "x"_a, "n"_a, "h"_a, "w"_a, "out"_a, "threads"_a = 0);
}

}  // namespace octavo
