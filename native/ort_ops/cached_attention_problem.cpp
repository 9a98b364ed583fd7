#include "ort_ops/cached_attention_problem.h"

#include <algorithm>
#include <string>

namespace octavo::ort {
namespace {

[[noreturn]] void refuse(const char* name, const Shape& found, const std::string& wanted) {
  throw Error(std::string(name) + " has shape " + found.text() + "; it has to be " + wanted);
}

std::size_t size(std::int64_t dim) { return static_cast<std::size_t>(dim); }
std::int64_t dim(std::size_t size) { return static_cast<std::int64_t>(size); }

}  // namespace

CachedAttentionProblem::CachedAttentionProblem(const Call& call, const CachedAttentionForm& form) : form_(form) {
  read_rows(call);
  read_past(call);
  read_lengths(call);
  if (form_.cos) read_rotary(call);
  read_added(call);
}

void CachedAttentionProblem::read_rows(const Call& call) {
  const Tensor<float> x = call.input<float>(0, "Q");
  const std::size_t all = form_.key ? form_.heads : form_.heads + 2 * form_.kv_heads;
  if (x.shape.rank != 3 || x.shape[2] == 0 || x.shape[2] % dim(all) != 0)
    refuse("Q", x.shape, "[batch, length, a multiple of " + std::to_string(all) + " heads]");
  batch = size(x.shape[0]);
  rows = size(x.shape[1]);
  q_width = size(x.shape[2]);
  depth = value_depth = q_width / all;
  q = x.data;
  if (!form_.key) {
    k = q + form_.heads * depth;
    v = k + form_.kv_heads * depth;
    k_width = v_width = q_width;
    return;
  }
  const Tensor<float> own_k = call.input<float>(form_.key, "key"), own_v = call.input<float>(form_.value, "value");
  k_width = form_.kv_heads * depth;
  const Shape wanted{x.shape[0], x.shape[1], dim(k_width)};
  if (own_k.shape != wanted) refuse("key", own_k.shape, wanted.text() + ", as Q says");
  const Shape& s = own_v.shape;
  if (s.rank != 3 || s[0] != wanted[0] || s[1] != wanted[1] || s[2] == 0 || s[2] % dim(form_.kv_heads) != 0)
    refuse("value", s, "[batch, length, a multiple of " + std::to_string(form_.kv_heads) + " heads], with batch and length of Q");
  k = own_k.data;
  v = own_v.data;
  v_width = size(s[2]);
  value_depth = v_width / form_.kv_heads;
  check_extent({x.shape[0], x.shape[1], dim(form_.heads), dim(value_depth)}, "the output");
}

void CachedAttentionProblem::read_past(const Call& call) {
  const Tensor<std::int32_t> stated = call.input<std::int32_t>(2, "total");
  if (stated.shape.elements() != 1) refuse("total", stated.shape, "[] or [1]");
  if (*stated.data < 0 || size(*stated.data) < rows)
    throw Error("total is " + std::to_string(*stated.data) + " and Q has " + std::to_string(rows) + " rows; it has to be as many or more");
  total = size(*stated.data);
  if (form_.past_key) {
    const Tensor<float> keys_before = call.input<float>(form_.past_key, "past_key");
    const Tensor<float> values_before = call.input<float>(form_.past_value, "past_value");
    const auto check = [&](const Shape& s, const char* name, std::size_t width) {
      if (s.rank != 4 || size(s[0]) != batch || size(s[1]) != form_.kv_heads || size(s[3]) != width || s[2] != keys_before.shape[2])
        refuse(name, s, "[" + std::to_string(batch) + ", " + std::to_string(form_.kv_heads) + ", past length, " + std::to_string(width) + "]");
    };
    check(keys_before.shape, "past_key", depth);
    check(values_before.shape, "past_value", value_depth);
    past_key = keys_before.data;
    past_value = values_before.data;
    past_rows = size(keys_before.shape[2]);
  }
  if (form_.evicts && past_rows < form_.window)
    throw Error("past_key has " + std::to_string(past_rows) + " rows; it has to have those of the window, " + std::to_string(form_.window) +
                ", or more");
  present_rows = form_.evicts ? past_rows : std::max(total, past_rows);
}

std::size_t CachedAttentionProblem::resident(std::size_t count) const {
  if (!form_.evicts || count <= past_rows) return count;
  const std::size_t at_once = past_rows - form_.window + 1;
  return count - (count - past_rows + at_once - 1) / at_once * at_once;
}

bool CachedAttentionProblem::fits() const {
  return std::all_of(before.begin(), before.end(), [this](std::size_t n) { return n + rows <= present_rows; });
}

void CachedAttentionProblem::read_lengths(const Call& call) {
  const Tensor<std::int32_t> lengths = call.input<std::int32_t>(1, "lengths");
  if (lengths.shape.elements() != batch) refuse("lengths", lengths.shape, "[" + std::to_string(batch) + "]");
  const bool prompt = rows == total;
  before.resize(batch, 0);
  first.resize(batch, 0);
  keys.resize(batch, 0);
  for (std::size_t b = 0; b < batch; ++b) {
    const std::int64_t stated = lengths.data[b];
    const auto fail = [&](std::int64_t least, std::int64_t most, const std::string& why) {
      throw Error("lengths[" + std::to_string(b) + "] is " + std::to_string(stated) + "; it has to be in " + std::to_string(least) + ".." +
                  std::to_string(most) + why);
    };
    if (stated < 0 || stated >= dim(total)) fail(0, dim(total) - 1, ", below total");
    keys[b] = size(stated) + 1;
    if (prompt) continue;
    const std::size_t most = form_.evicts ? total - rows : past_rows;
    if (keys[b] < rows || keys[b] - rows > most)
      fail(dim(rows) - 1, dim(rows + most) - 1, " with " + std::to_string(rows) + " new rows and a past of " + std::to_string(past_rows));
    first[b] = keys[b] - rows;
    before[b] = resident(first[b]);
    alike = alike && before[b] == before[0];
  }
}

void CachedAttentionProblem::read_rotary(const Call& call) {
  const Tensor<float> cosines = call.input<float>(form_.cos, "cos"), sines = call.input<float>(form_.sin, "sin");
  if (cosines.shape.rank != 2 || size(cosines.shape[1]) * 2 > depth)
    refuse("cos", cosines.shape, "[positions, at most " + std::to_string(depth / 2) + "]");
  if (sines.shape != cosines.shape) refuse("sin", sines.shape, cosines.shape.text() + ", as cos");
  cos = cosines.data;
  sin = sines.data;
  half = size(cosines.shape[1]);
  const std::int64_t* given = nullptr;
  if (form_.positions) {
    const Tensor<std::int64_t> stated = call.input<std::int64_t>(form_.positions, "positions");
    if (stated.shape.elements() != batch * rows)
      refuse("positions", stated.shape, "[" + std::to_string(batch) + ", " + std::to_string(rows) + "]");
    given = stated.data;
  }
  const bool prompt = rows == total;
  positions.resize(batch * rows);
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const std::int64_t row = dim(i % rows);
    if (!given) positions[i] = dim(first[i / rows]) + row;
    else positions[i] = prompt ? given[0] + row : given[i];
    if (positions[i] < 0 || positions[i] >= cosines.shape[0])
      throw Error("position " + std::to_string(positions[i]) + " is none of cos and sin, which have " + std::to_string(cosines.shape[0]));
  }
}

void CachedAttentionProblem::read_added(const Call& call) {
  if (form_.bias) {
    const Tensor<float> given = call.input<float>(form_.bias, "bias");
    const Shape& s = given.shape;
    if (s.rank != 4 || (s[0] != 1 && size(s[0]) != batch) || (s[1] != 1 && size(s[1]) != form_.heads) || size(s[2]) != rows ||
        size(s[3]) != total)
      refuse("bias", s, "[1 or " + std::to_string(batch) + ", 1 or " + std::to_string(form_.heads) + ", " + std::to_string(rows) + ", " +
                            std::to_string(total) + "]");
    bias = given.data;
    bias_shape = s;
  }
  if (form_.sinks) {
    const Tensor<float> given = call.input<float>(form_.sinks, "sinks");
    if (given.shape.elements() != form_.heads) refuse("sinks", given.shape, "[" + std::to_string(form_.heads) + "]");
    sinks = given.data;
  }
}

}  // namespace octavo::ort
