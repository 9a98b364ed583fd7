// A linear layer as Python holds it.
#pragma once

#include <nanobind/stl/optional.h>

#include <optional>
#include <string>

#include "layers/linear.h"
#include "layers/pack.h"
#include "python/bind.h"
#include "runtime/parallel.h"

namespace octavo {

using Packed = Array<const std::uint8_t, 1>;

// A layer with the packed weights that it refers to: any object with a buffer, a mapped file included.
struct BoundLinear {
  Packed packed;
  Array<const float, 1> scale;
  std::optional<Array<const float, 1>> bias;
  Linear layer;

  // `live`: what is written into scale and bias counts, where these need no padding (`reads_live`).
  BoundLinear(Packed data, std::size_t n, std::size_t k, std::size_t group, Array<const float, 1> scales,
              const std::optional<Array<const std::int32_t, 1>>& zero,
              std::optional<Array<const float, 1>> biases, int activation, bool live, const std::string& format)
      : packed(std::move(data)),
        scale(std::move(scales)),
        bias(std::move(biases)),
        layer(checked(packed, weight_format(format), n, k, scale.shape(0) == n && (!zero || zero->shape(0) == n) && (!bias || bias->shape(0) == n)),
              n, k, group, scale.data(), zero ? zero->data() : nullptr, bias ? bias->data() : nullptr,
              static_cast<Activation>(activation)) {
    if (!live || !reads_live(n)) return;
    layer.weight.scale = scale.data();
    if (bias) layer.bias = bias->data();
  }

  // Whether arrays over n columns need no padding.
  static bool reads_live(std::size_t n) { return n % kBlockN == 0; }

  static PackedData checked(const Packed& data, WeightFormat format, std::size_t n, std::size_t k, bool vectors) {
    const PackedData found = packed_data(data, packed_bytes(n, k, format), format, "Linear");
    expect(vectors, "Linear: scale, zero and bias need one element a column");
    return found;
  }

  double work(std::size_t rows) const {
    return static_cast<double>(rows) * static_cast<double>(layer.weight.n) * static_cast<double>(layer.weight.k);
  }

  void call(const Rows& in, const Output& out, int threads) const {
    const Linear* one = &layer;
    const MaybeRelease release(work(in.rows) > kLongWork);
    linear(&one, 1, in, &out, threads > 0 ? threads : num_threads());
  }

  // Rows of one type in and out: what front ends call, so the rarer arguments stand last.
  void run(std::uintptr_t x, std::size_t rows, std::size_t x_stride, std::uintptr_t out, std::size_t out_stride,
           int type, std::uintptr_t residual, std::size_t residual_stride, int threads) const {
    const auto both = static_cast<DType>(type);
    call({pointer<const void>(x), both, rows, x_stride, nullptr, nullptr},
         {pointer<void>(out), both, out_stride, pointer<const void>(residual), residual_stride}, threads);
  }

  // The input is uint8 already: scale and zero_point of each row, or each group of it.
  void run_quantized(std::uintptr_t q, std::size_t rows, std::size_t q_stride, std::uintptr_t scale,
                     std::uintptr_t zero_point, std::uintptr_t out, int out_type, std::size_t out_stride,
                     std::uintptr_t residual, std::size_t residual_stride, int threads) const {
    call({pointer<const void>(q), DType::kFloat32, rows, q_stride, pointer<const float>(scale), pointer<const std::int32_t>(zero_point)},
         {pointer<void>(out), static_cast<DType>(out_type), out_stride, pointer<const void>(residual), residual_stride}, threads);
  }
};

}  // namespace octavo
