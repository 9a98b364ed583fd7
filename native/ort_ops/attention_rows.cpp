#include "ort_ops/attention_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "layers/attention_call.h"

namespace octavo::ort {
namespace {

using Column = AttentionCall::Column;

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kLowest = std::numeric_limits<float>::lowest();

const float* values_of(const AttentionCall& call, std::size_t item, Column c) { return call.v(item, c.head / call.group, 0); }

// Whether a key is left to a query: one in its reach that the mask shows, and whose bias is above `hides`.
bool sees_any(const AttentionCall& call, std::size_t item, Column c, float hides) {
  const AttentionInputs& in = call.in;
  const AttentionCall::Keys reached = call.keys_of(c.query, c.query);
  for (std::size_t t = reached.begin; t < reached.end; ++t)
    if ((!in.mask || *call.mask(item, c, t)) && (!in.bias || !(*call.bias(item, c, t) <= hides))) return true;
  return false;
}

bool holds_nan(const AttentionInputs& in, const float* values) {
  for (std::size_t t = 0; t < in.keys; ++t)
    for (std::size_t d = 0; d < in.value_depth; ++d)
      if (std::isnan(values[t * in.v_steps.row + d])) return true;
  return false;
}

// The product of a query and a key, scaled and capped.
float score(const AttentionCall& call, std::size_t item, Column c, std::size_t t) {
  const AttentionInputs& in = call.in;
  const float *q = call.q(item, c), *k = call.k(item, c.head / call.group, t);
  double sum = 0.0;
  for (std::size_t d = 0; d < in.depth; ++d) sum += static_cast<double>(q[d]) * k[d];
  const float s = static_cast<float>(sum) * in.scale;
  return in.softcap > 0.0f ? in.softcap * std::tanh(s / in.softcap) : s;
}

// f(item, query and head, row of the output), for every row.
template <class F>
void each_row(const AttentionCall& call, const F& f) {
  const AttentionInputs& in = call.in;
  for (std::size_t b = 0; b < in.batch; ++b)
    for (std::size_t h = 0; h < in.heads; ++h)
      for (std::size_t i = 0; i < in.queries; ++i) f(b, Column{i, h}, call.out(b, {i, h}));
}

}  // namespace

void fill_where_hidden(const AttentionInputs& in, Fill fill) {
  if ((!in.mask && !in.causal && !in.window) || !in.keys || !in.value_depth) return;
  const AttentionCall call(in);
  std::vector<float> scores(in.keys);
  each_row(call, [&](std::size_t b, Column c, float* row) {
    // Half of it is far enough above: what it hides has no weight beside such a key.
    if (sees_any(call, b, c, 0.5f * fill.value)) return;
    const std::size_t head = c.head / call.group;
    const AttentionCall::Keys reached = call.keys_of(c.query, c.query);
    float most = -kInfinity;
    for (std::size_t t = 0; t < in.keys; ++t) {
      const bool seen = t >= reached.begin && t < reached.end && (!in.mask || *call.mask(b, c, t));
      scores[t] = seen ? score(call, b, c, t) : fill.value;
      if (in.bias && (seen || !fill.replaces)) scores[t] += *call.bias(b, c, t);
      most = std::max(most, scores[t]);
    }
    double sum = 0.0;
    for (float& s : scores) sum += s = std::exp(s - most);
    for (std::size_t d = 0; d < in.value_depth; ++d) {
      double mean = 0.0;
      for (std::size_t t = 0; t < in.keys; ++t) mean += scores[t] == 0.0f ? 0.0 : scores[t] / sum * call.v(b, head, t)[d];
      row[d] = static_cast<float>(mean);
    }
  });
}

void zero_where_not_a_number(const AttentionInputs& in) {
  if (!in.keys || !in.value_depth) return;
  const AttentionCall call(in);
  each_row(call, [&](std::size_t b, Column c, float* row) {
    const bool all = std::all_of(row, row + in.value_depth, [](float x) { return std::isnan(x); });
    if (all && !holds_nan(in, values_of(call, b, c))) std::fill(row, row + in.value_depth, 0.0f);
  });
}

void zero_where_hidden(const AttentionInputs& in) {
  if (!in.bias || !in.keys) return;
  const AttentionCall call(in);
  each_row(call, [&](std::size_t b, Column c, float* row) {
    if (!sees_any(call, b, c, kLowest)) std::fill(row, row + in.value_depth, 0.0f);
  });
}

}  // namespace octavo::ort
