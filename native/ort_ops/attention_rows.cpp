#include "ort_ops/attention_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace octavo::ort {
namespace {

const float* values_of(const AttentionInputs& in, std::size_t item, std::size_t head) {
  return in.v + item * in.v_steps.batch + head / (in.heads / in.kv_heads) * in.v_steps.head;
}

bool mask_hides(const AttentionInputs& in, std::size_t item, std::size_t head, std::size_t query) {
  const std::uint8_t* row = in.mask + item * in.mask_batch + head * in.mask_head + query * in.mask_query;
  for (std::size_t t = 0; t < in.keys; ++t)
    if (row[t * in.mask_key]) return false;
  return true;
}

bool bias_hides(const AttentionInputs& in, std::size_t item, std::size_t head, std::size_t query) {
  const float* row = in.bias + item * in.bias_batch + head * in.bias_head + query * in.bias_query;
  for (std::size_t t = 0; t < in.keys; ++t)
    if (!(row[t * in.bias_key] == -std::numeric_limits<float>::infinity())) return false;
  return true;
}

bool holds_nan(const AttentionInputs& in, const float* values) {
  for (std::size_t t = 0; t < in.keys; ++t)
    for (std::size_t d = 0; d < in.value_depth; ++d)
      if (std::isnan(values[t * in.v_steps.row + d])) return true;
  return false;
}

// f(item, head, query, row of the output), for every row.
template <class F>
void each_row(const AttentionInputs& in, const F& f) {
  for (std::size_t b = 0; b < in.batch; ++b)
    for (std::size_t h = 0; h < in.heads; ++h)
      for (std::size_t i = 0; i < in.queries; ++i)
        f(b, h, i, in.out + b * in.out_steps.batch + h * in.out_steps.head + i * in.out_steps.row);
}

}  // namespace

void mean_where_hidden(const AttentionInputs& in) {
  if (!in.mask || !in.keys || !in.value_depth) return;
  std::vector<float> mean;
  const float* of = nullptr;
  each_row(in, [&](std::size_t b, std::size_t h, std::size_t i, float* row) {
    if (!mask_hides(in, b, h, i)) return;
    const float* values = values_of(in, b, h);
    if (of != values) {
      mean.assign(in.value_depth, 0.0f);
      for (std::size_t t = 0; t < in.keys; ++t)
        for (std::size_t d = 0; d < in.value_depth; ++d) mean[d] += values[t * in.v_steps.row + d];
      for (float& m : mean) m /= static_cast<float>(in.keys);
      of = values;
    }
    std::copy(mean.begin(), mean.end(), row);
  });
}

void zero_where_not_a_number(const AttentionInputs& in) {
  if (!in.keys || !in.value_depth) return;
  each_row(in, [&](std::size_t b, std::size_t h, std::size_t, float* row) {
    const bool all = std::all_of(row, row + in.value_depth, [](float x) { return std::isnan(x); });
    if (all && !holds_nan(in, values_of(in, b, h))) std::fill(row, row + in.value_depth, 0.0f);
  });
}

void zero_where_bias_hides(const AttentionInputs& in) {
  if (!in.bias || !in.keys) return;
  each_row(in, [&](std::size_t b, std::size_t h, std::size_t i, float* row) {
    if (bias_hides(in, b, h, i)) std::fill(row, row + in.value_depth, 0.0f);
  });
}

}  // namespace octavo::ort
