#include <nanobind/stl/optional.h>

#include <optional>
#include <vector>

#include "contract/tables.h"
#include "layers/half_linear.h"
#include "python/bind.h"
#include "runtime/arena.h"
#include "runtime/parallel.h"

namespace octavo {

using namespace nb::literals;

namespace {

using Packed = Array<const std::uint16_t, 1>;

// Work (multiply-accumulates) from which a call gives up Python's lock: about 20 us.
constexpr double kLong = 1e6;

void bound_widen(int dtype, Array<const std::uint16_t, 1> x, Array<float, 1> y) {
  expect(x.shape(0) == y.shape(0), "widen: both arrays need the same length");
  const nb::gil_scoped_release release;
  const FloatMode mode;
  table().widen(static_cast<DType>(dtype), x.data(), y.data(), x.shape(0));
}

void bound_narrow(int dtype, Array<const float, 1> x, Array<std::uint16_t, 1> y) {
  expect(x.shape(0) == y.shape(0), "narrow: both arrays need the same length");
  const nb::gil_scoped_release release;
  const FloatMode mode;
  table().narrow(static_cast<DType>(dtype), x.data(), y.data(), x.shape(0));
}

// A layer with the packed weights that it refers to: any object with a buffer, a mapped file included.
struct BoundHalfLinear {
  Packed packed;
  HalfLinear layer;

  BoundHalfLinear(Packed data, int type, std::size_t n, std::size_t k,
                  const std::optional<Array<const float, 1>>& bias, int activation)
      : packed(std::move(data)),
        layer(checked(packed, n, k, !bias || bias->shape(0) == n), static_cast<DType>(type), n, k,
              bias ? bias->data() : nullptr, static_cast<Activation>(activation)) {}

  static const std::uint16_t* checked(const Packed& data, std::size_t n, std::size_t k, bool bias) {
    const std::size_t size = half_packed_size(n, k);
    expect(data.shape(0) == size, "HalfLinear: packed needs " + std::to_string(size) + " elements");
    expect(size == 0 || reinterpret_cast<std::uintptr_t>(data.data()) % kAlign == 0,
           "HalfLinear: packed needs 64-byte alignment");
    expect(bias, "HalfLinear: bias needs one element a column");
    return data.data();
  }

  // Rows of one type in and out, as Linear's run.
  void run(std::uintptr_t x, std::size_t rows, std::size_t x_stride, std::uintptr_t out, std::size_t out_stride,
           int type, std::uintptr_t residual, std::size_t residual_stride, int threads) const {
    const double work = static_cast<double>(rows) * static_cast<double>(layer.n) * static_cast<double>(layer.k);
    const MaybeRelease release(work > kLong);
    const auto both = static_cast<DType>(type);
    half_linear(layer, {pointer<const void>(x), both, rows, x_stride, nullptr, nullptr},
                {pointer<void>(out), both, out_stride, pointer<const void>(residual), residual_stride},
                threads > 0 ? threads : num_threads());
  }
};

// What lies in an array of bfloat16 (through DLPack; NumPy knows none), as an array over the same memory.
nb::ndarray<nb::numpy, std::uint16_t> bfloat16_bits(nb::ndarray<nb::device::cpu> x) {
  const nb::dlpack::dtype dtype = x.dtype();
  expect(dtype.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bfloat) && dtype.bits == 16 && dtype.lanes == 1,
         "x: needs bfloat16");
  std::vector<std::size_t> shape;
  std::vector<std::int64_t> strides;
  for (std::size_t axis = 0; axis < x.ndim(); ++axis) {
    shape.push_back(x.shape(axis));
    strides.push_back(x.stride(axis));
  }
  nb::capsule owner(new nb::ndarray<nb::device::cpu>(x),
                    [](void* kept) noexcept { delete static_cast<nb::ndarray<nb::device::cpu>*>(kept); });
  return {x.data(), x.ndim(), shape.data(), owner, strides.data()};
}

}  // namespace

void bind_half(nb::module_& m) {
  m.def("bfloat16_bits", &bfloat16_bits, "x"_a);
  m.def("widen", &bound_widen, "dtype"_a, "x"_a, "y"_a);
  m.def("narrow", &bound_narrow, "dtype"_a, "x"_a, "y"_a);
  m.def("half_packed_size", &half_packed_size, "n"_a, "k"_a);
  m.def(
      "half_pack",
      [](Array<const std::uint16_t, 2> w, Array<std::uint16_t, 1> packed) {
        expect(packed.shape(0) == half_packed_size(w.shape(0), w.shape(1)), "half_pack: the output has the wrong size");
        const nb::gil_scoped_release release;
        half_pack(w.data(), w.shape(0), w.shape(1), packed.data());
      },
      "w"_a, "packed"_a);
  m.def(
      "half_unpack",
      [](Packed packed, Array<std::uint16_t, 2> w) {
        expect(packed.shape(0) == half_packed_size(w.shape(0), w.shape(1)),
               "half_unpack: the input has the wrong size");
        const nb::gil_scoped_release release;
        half_unpack(packed.data(), w.shape(0), w.shape(1), w.data());
      },
      "packed"_a, "w"_a);
  nb::class_<BoundHalfLinear>(m, "HalfLinear")
      .def(nb::init<Packed, int, std::size_t, std::size_t, std::optional<Array<const float, 1>>, int>(), "packed"_a,
           "dtype"_a, "n"_a, "k"_a, "bias"_a.none(), "activation"_a)
      .def("run", &BoundHalfLinear::run, "x"_a, "rows"_a, "x_stride"_a, "out"_a, "out_stride"_a,
           "dtype"_a = 0, "residual"_a = 0, "residual_stride"_a = 0, "threads"_a = 0);
}

}  // namespace octavo
