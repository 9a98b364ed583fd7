#include <nanobind/stl/array.h>

#include <array>

#include "layers/attention.h"
#include "layers/norm.h"
#include "layers/rotary.h"
#include "python/bind.h"
#include "runtime/parallel.h"

namespace octavo {

using namespace nb::literals;

namespace {

// Work from which a call gives up Python's lock: about 20 us.
constexpr double kLongProducts = 1e6;
constexpr std::size_t kLongRows = 50000;

using Addresses = std::array<std::uintptr_t, 4>;

// Addresses: q, k, v and out. Sizes: batch, heads, kv_heads, queries, keys, depth, value_depth. Steps: of q, k, v and
// out for batch, row and head. Strides of bias and mask: for batch, head, query and key.
void run_attention(const Addresses& addresses, const std::array<std::size_t, 7>& sizes, const std::array<std::size_t, 12>& steps,
                   float scale, std::uintptr_t bias, const std::array<std::size_t, 4>& bias_strides, std::uintptr_t mask,
                   const std::array<std::size_t, 4>& mask_strides, bool causal, std::ptrdiff_t offset, std::size_t window,
                   float softcap, std::uintptr_t sinks, bool bfloat16, int threads) {
  AttentionInputs in{};
  in.batch = sizes[0];
  in.heads = sizes[1];
  in.kv_heads = sizes[2];
  in.queries = sizes[3];
  in.keys = sizes[4];
  in.depth = sizes[5];
  in.value_depth = sizes[6];
  in.q = pointer<const float>(addresses[0]);
  in.k = pointer<const float>(addresses[1]);
  in.v = pointer<const float>(addresses[2]);
  in.out = pointer<float>(addresses[3]);
  AttentionInputs::Steps* const each[] = {&in.q_steps, &in.k_steps, &in.v_steps, &in.out_steps};
  for (std::size_t i = 0; i < 4; ++i) *each[i] = {steps[3 * i], steps[3 * i + 1], steps[3 * i + 2]};
  in.scale = scale;
  in.bias = pointer<const float>(bias);
  in.bias_batch = bias_strides[0];
  in.bias_head = bias_strides[1];
  in.bias_query = bias_strides[2];
  in.bias_key = bias_strides[3];
  in.mask = pointer<const std::uint8_t>(mask);
  in.mask_batch = mask_strides[0];
  in.mask_head = mask_strides[1];
  in.mask_query = mask_strides[2];
  in.mask_key = mask_strides[3];
  in.causal = causal;
  in.offset = offset;
  in.window = window;
  in.softcap = softcap;
  in.sinks = pointer<const float>(sinks);
  in.bfloat16 = bfloat16;
  const double work = static_cast<double>(in.batch * in.heads * in.queries) * static_cast<double>(in.keys * (in.depth + in.value_depth));
  const MaybeRelease release(work > kLongProducts);
  attention(in, threads > 0 ? threads : num_threads());
}

void run_norm(Norm kind, std::uintptr_t x, std::size_t rows, std::size_t columns, std::size_t stride, std::uintptr_t residual,
              std::uintptr_t weight, std::uintptr_t bias, float eps, std::uintptr_t sum, std::uintptr_t out, std::size_t out_stride,
              int threads) {
  const MaybeRelease release(rows * columns > kLongRows);
  NormRows in;
  in.kind = kind;
  in.x = pointer<const float>(x);
  in.rows = rows;
  in.columns = columns;
  in.stride = stride;
  in.residual = pointer<const float>(residual);
  in.residual_stride = columns;
  in.weight = pointer<const float>(weight);
  in.bias = pointer<const float>(bias);
  in.eps = eps;
  in.sum = pointer<float>(sum);
  in.sum_stride = columns;
  in.out = pointer<float>(out);
  in.out_stride = out_stride;
  norm(in, threads > 0 ? threads : num_threads());
}

void run_layer_norm(std::uintptr_t x, std::size_t rows, std::size_t columns, std::size_t stride, std::uintptr_t weight,
                    std::uintptr_t bias, float eps, std::uintptr_t out, std::size_t out_stride, int threads) {
  run_norm(Norm::kLayer, x, rows, columns, stride, 0, weight, bias, eps, 0, out, out_stride, threads);
}

// Rows without gaps; `residual`, `weight`, `bias` and `sum` may be 0.
void run_norm_rows(int kind, std::uintptr_t x, std::size_t rows, std::size_t columns, std::uintptr_t residual, std::uintptr_t weight,
                   std::uintptr_t bias, float eps, std::uintptr_t sum, std::uintptr_t out, int threads) {
  run_norm(static_cast<Norm>(kind), x, rows, columns, columns, residual, weight, bias, eps, sum, out, columns, threads);
}

// Sizes: batch, heads, rows, width, turned. Strides: of x, then of `out`, for batch, head and row; of the tables for
// batch and row; of positions for batch and row.
void run_rotary(std::uintptr_t x, std::uintptr_t cos, std::uintptr_t sin, std::uintptr_t positions, std::uintptr_t out,
                const std::array<std::size_t, 5>& sizes, const std::array<std::size_t, 10>& strides, bool interleaved, bool each, int threads) {
  RotaryInputs in{};
  in.batch = sizes[0];
  in.heads = sizes[1];
  in.rows = sizes[2];
  in.width = sizes[3];
  in.turned = sizes[4];
  in.interleaved = interleaved;
  in.each = each;
  in.x = pointer<const float>(x);
  in.x_steps = {strides[0], strides[1], strides[2]};
  in.out = pointer<float>(out);
  in.out_steps = {strides[3], strides[4], strides[5]};
  in.cos = pointer<const float>(cos);
  in.sin = pointer<const float>(sin);
  in.table_batch = strides[6];
  in.table_row = strides[7];
  in.positions = pointer<const std::int64_t>(positions);
  in.position_batch = strides[8];
  in.position_row = strides[9];
  const MaybeRelease release(in.batch * in.heads * in.rows * in.width > kLongRows);
  rotary(in, threads > 0 ? threads : num_threads());
}

}  // namespace

void bind_attention(nb::module_& m) {
  m.def("attention", &run_attention, "addresses"_a, "sizes"_a, "steps"_a, "scale"_a, "bias"_a, "bias_strides"_a, "mask"_a,
        "mask_strides"_a, "causal"_a, "offset"_a, "window"_a, "softcap"_a, "sinks"_a, "bfloat16"_a, "threads"_a);
  m.def("layer_norm", &run_layer_norm, "x"_a, "rows"_a, "columns"_a, "stride"_a, "weight"_a, "bias"_a, "eps"_a, "out"_a,
        "out_stride"_a, "threads"_a);
  m.def("norm_rows", &run_norm_rows, "kind"_a, "x"_a, "rows"_a, "columns"_a, "residual"_a, "weight"_a, "bias"_a, "eps"_a, "total"_a, "out"_a,
        "threads"_a);
  m.def("rotary", &run_rotary, "x"_a, "cos"_a, "sin"_a, "positions"_a, "out"_a, "sizes"_a, "strides"_a, "interleaved"_a, "each"_a, "threads"_a);
}

}  // namespace octavo
