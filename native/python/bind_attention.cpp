#include <nanobind/stl/array.h>

#include <array>

#include "layers/attention.h"
#include "layers/layer_norm.h"
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
                   float softcap, int threads) {
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
  const double work = static_cast<double>(in.batch * in.heads * in.queries) * static_cast<double>(in.keys * (in.depth + in.value_depth));
  const MaybeRelease release(work > kLongProducts);
  attention(in, threads > 0 ? threads : num_threads());
}

void run_layer_norm(std::uintptr_t x, std::size_t rows, std::size_t columns, std::size_t stride, std::uintptr_t weight,
                    std::uintptr_t bias, float eps, std::uintptr_t out, std::size_t out_stride, int threads) {
  const MaybeRelease release(rows * columns > kLongRows);
  layer_norm({pointer<const float>(x), rows, columns, stride, pointer<const float>(weight), pointer<const float>(bias), eps,
              pointer<float>(out), out_stride},
             threads > 0 ? threads : num_threads());
}

}  // namespace

void bind_attention(nb::module_& m) {
  m.def("attention", &run_attention, "addresses"_a, "sizes"_a, "steps"_a, "scale"_a, "bias"_a, "bias_strides"_a, "mask"_a,
        "mask_strides"_a, "causal"_a, "offset"_a, "window"_a, "softcap"_a, "threads"_a);
  m.def("layer_norm", &run_layer_norm, "x"_a, "rows"_a, "columns"_a, "stride"_a, "weight"_a, "bias"_a, "eps"_a, "out"_a,
        "out_stride"_a, "threads"_a);
}

}  // namespace octavo
