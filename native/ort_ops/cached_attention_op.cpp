#include "ort_ops/cached_attention_op.h"

#include <algorithm>
#include <cmath>

#include "layers/cache.h"
#include "layers/rotary.h"
#include "runtime/arena.h"

namespace octavo::ort {
namespace {

constexpr std::size_t kFixed = 3;  // inputs in front of those that `given` names

struct CachedAttentionScratch;

[[noreturn]] void refuse(const char* name, const Shape& found, const std::string& wanted) {
  throw Error(std::string(name) + " has shape " + found.text() + "; it has to be " + wanted);
}

std::size_t size(std::int64_t dim) { return static_cast<std::size_t>(dim); }

// The elements of one item, whose rows are [rows, width].
AttentionInputs::Steps rows_of(std::size_t rows, std::size_t width, std::size_t depth) { return {rows * width, width, depth}; }

}  // namespace

// A run: where its inputs are, and the sizes of all that they make.
struct CachedAttentionOp::Problem {
  std::size_t batch, rows, depth, value_depth, total, past_rows = 0, present_rows;
  const float *q, *k, *v;
  std::size_t q_width, k_width, v_width;  // elements of a row
  const float *past_key = nullptr, *past_value = nullptr;
  std::vector<std::size_t> before;        // rows of the past of each item
  bool alike = true;                      // they are as many in all
  const float *cos = nullptr, *sin = nullptr;
  std::size_t half = 0;                   // elements of a row of these
  std::vector<std::int64_t> positions;    // of every row, where they turn
  const float *bias = nullptr, *sinks = nullptr;
  Shape bias_shape;
  float *present_key = nullptr, *present_value = nullptr;
};

CachedAttentionOp::CachedAttentionOp(const Node& node)
    : heads_(node.size("heads")),
      kv_heads_(node.size("kv_heads")),
      scale_(node.number("scale", 0.0f)),
      softcap_(node.number("softcap", 0.0f)),
      window_(size(std::max<std::int64_t>(0, node.integer("window", 0)))),
      interleaved_(node.integer("interleaved", 0) != 0) {
  if (heads_ % kv_heads_ != 0) node.fail("the attribute kv_heads has to divide heads");
  if (!std::isfinite(scale_)) node.fail("the attribute scale is not finite");
  if (!(softcap_ >= 0.0f) || !std::isfinite(softcap_)) node.fail("the attribute softcap is not finite, or below 0");
  const std::size_t outputs = node.size("outputs", 1, kOutputs);
  if (outputs != node.outputs())
    node.fail("the attribute outputs is " + std::to_string(outputs) + "; the node has " + std::to_string(node.outputs()));
  const std::vector<std::string> given =
      given_inputs(node, {"key", "value", "past_key", "past_value", "cos", "sin", "positions", "bias", "sinks"});
  std::size_t at = kFixed;
  for (const std::string& name : given) {
    std::size_t& place = name == "key"          ? key_
                         : name == "value"      ? value_
                         : name == "past_key"   ? past_key_
                         : name == "past_value" ? past_value_
                         : name == "cos"        ? cos_
                         : name == "sin"        ? sin_
                         : name == "positions"  ? positions_
                         : name == "bias"       ? bias_
                                                : sinks_;
    place = at++;
  }
  if (node.inputs() != at)
    node.fail("the attribute given names " + std::to_string(given.size()) + " inputs behind total; the node has " +
              std::to_string(node.inputs() - std::min(node.inputs(), kFixed)));
  const auto both = [&](std::size_t a, std::size_t b, const char* names) {
    if ((a == 0) != (b == 0)) node.fail(std::string("the attribute given has one of ") + names + "; it has to have both or none");
  };
  both(key_, value_, "key and value");
  both(past_key_, past_value_, "past_key and past_value");
  both(cos_, sin_, "cos and sin");
  if (positions_ && !cos_) node.fail("the attribute given has positions; it has to have cos and sin too");
}

CachedAttentionOp::Problem CachedAttentionOp::problem(const Call& call) const {
  const Tensor<float> q = call.input<float>(0, "Q");
  const std::size_t all = key_ ? heads_ : heads_ + 2 * kv_heads_;
  if (q.shape.rank != 3 || q.shape[2] % static_cast<std::int64_t>(all) != 0)
    refuse("Q", q.shape, "[batch, length, a multiple of " + std::to_string(all) + " heads]");
  Problem p{};
  p.batch = size(q.shape[0]);
  p.rows = size(q.shape[1]);
  p.q_width = size(q.shape[2]);
  p.depth = p.value_depth = p.q_width / all;
  p.q = q.data;
  if (key_) {
    const Tensor<float> k = call.input<float>(key_, "key"), v = call.input<float>(value_, "value");
    const auto kv = static_cast<std::int64_t>(kv_heads_), depth = static_cast<std::int64_t>(p.depth);
    if (k.shape != Shape{q.shape[0], q.shape[1], kv * depth})
      refuse("key", k.shape, Shape{q.shape[0], q.shape[1], kv * depth}.text() + ", as Q says");
    if (v.shape.rank != 3 || v.shape[0] != q.shape[0] || v.shape[1] != q.shape[1] || v.shape[2] % kv != 0)
      refuse("value", v.shape, "[batch, length, a multiple of " + std::to_string(kv) + " heads], with batch and length of Q");
    p.k = k.data;
    p.v = v.data;
    p.k_width = kv_heads_ * p.depth;
    p.v_width = size(v.shape[2]);
    p.value_depth = p.v_width / kv_heads_;
  } else {
    p.k = p.q + heads_ * p.depth;
    p.v = p.k + kv_heads_ * p.depth;
    p.k_width = p.v_width = p.q_width;
  }
  read_past(call, p);
  read_lengths(call, p);
  if (cos_) read_rotary(call, p);
  read_added(call, p);
  return p;
}

void CachedAttentionOp::read_past(const Call& call, Problem& p) const {
  const AnyTensor total = call.any_input(2, "total");
  const Tensor<std::int32_t> stated = typed<std::int32_t>(total, "total");
  if (total.shape.elements() != 1) refuse("total", total.shape, "[] or [1]");
  if (*stated.data < static_cast<std::int32_t>(p.rows))
    throw Error("total is " + std::to_string(*stated.data) + " and Q has " + std::to_string(p.rows) + " rows; it has to be as many or more");
  p.total = size(*stated.data);
  if (past_key_) {
    const Tensor<float> k = call.input<float>(past_key_, "past_key"), v = call.input<float>(past_value_, "past_value");
    const auto expect = [&](const Tensor<float>& past, const char* name, std::size_t depth) {
      const Shape& s = past.shape;
      if (s.rank != 4 || size(s[0]) != p.batch || size(s[1]) != kv_heads_ || size(s[3]) != depth || s[2] != k.shape[2])
        refuse(name, s, "[" + std::to_string(p.batch) + ", " + std::to_string(kv_heads_) + ", past length, " + std::to_string(depth) + "]");
    };
    expect(k, "past_key", p.depth);
    expect(v, "past_value", p.value_depth);
    p.past_key = k.data;
    p.past_value = v.data;
    p.past_rows = size(k.shape[2]);
  }
  p.present_rows = std::max(p.total, p.past_rows);
}

void CachedAttentionOp::read_lengths(const Call& call, Problem& p) const {
  const Tensor<std::int32_t> lengths = call.input<std::int32_t>(1, "lengths");
  if (lengths.shape.elements() != p.batch) refuse("lengths", lengths.shape, "[" + std::to_string(p.batch) + "]");
  const bool prompt = p.rows == p.total;
  p.before.resize(p.batch, 0);
  for (std::size_t b = 0; b < p.batch; ++b) {
    const std::int64_t keys = std::int64_t{lengths.data[b]} + 1, rows = static_cast<std::int64_t>(p.rows);
    if (keys < 1 || keys > static_cast<std::int64_t>(p.total))
      throw Error("lengths[" + std::to_string(b) + "] is " + std::to_string(lengths.data[b]) + "; it has to be in 0.." +
                  std::to_string(static_cast<std::int64_t>(p.total) - 1) + ", below total");
    if (prompt) continue;
    if (keys < rows || size(keys - rows) > p.past_rows)
      throw Error("lengths[" + std::to_string(b) + "] is " + std::to_string(lengths.data[b]) + " with " + std::to_string(rows) +
                  " new rows and a past of " + std::to_string(p.past_rows) + "; it has to be in " + std::to_string(rows - 1) + ".." +
                  std::to_string(rows - 1 + static_cast<std::int64_t>(p.past_rows)));
    p.before[b] = size(keys - rows);
    p.alike = p.alike && p.before[b] == p.before[0];
  }
}

void CachedAttentionOp::read_rotary(const Call& call, Problem& p) const {
  const Tensor<float> cos = call.input<float>(cos_, "cos"), sin = call.input<float>(sin_, "sin");
  if (cos.shape.rank != 2 || size(cos.shape[1]) * 2 > p.depth)
    refuse("cos", cos.shape, "[positions, at most " + std::to_string(p.depth / 2) + "]");
  if (sin.shape != cos.shape) refuse("sin", sin.shape, cos.shape.text() + ", as cos");
  p.cos = cos.data;
  p.sin = sin.data;
  p.half = size(cos.shape[1]);
  const std::int64_t* given = nullptr;
  if (positions_) {
    const Tensor<std::int64_t> stated = call.input<std::int64_t>(positions_, "positions");
    if (stated.shape.elements() != p.batch * p.rows)
      refuse("positions", stated.shape, "[" + std::to_string(p.batch) + ", " + std::to_string(p.rows) + "]");
    given = stated.data;
  }
  const bool prompt = p.rows == p.total;
  p.positions.resize(p.batch * p.rows);
  for (std::size_t i = 0; i < p.positions.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i % p.rows);
    std::int64_t& position = p.positions[i];
    if (!given) position = static_cast<std::int64_t>(p.before[i / p.rows]) + row;
    else position = prompt ? given[0] + row : given[i];
    if (position < 0 || position >= cos.shape[0])
      throw Error("position " + std::to_string(position) + " is none of cos and sin, which have " + std::to_string(cos.shape[0]));
  }
}

void CachedAttentionOp::read_added(const Call& call, Problem& p) const {
  if (bias_) {
    const Tensor<float> bias = call.input<float>(bias_, "bias");
    const Shape& s = bias.shape;
    if (s.rank != 4 || (s[0] != 1 && size(s[0]) != p.batch) || (s[1] != 1 && size(s[1]) != heads_) || size(s[2]) != p.rows ||
        size(s[3]) != p.total)
      refuse("bias", s, "[1 or " + std::to_string(p.batch) + ", 1 or " + std::to_string(heads_) + ", " + std::to_string(p.rows) + ", " +
                            std::to_string(p.total) + "]");
    p.bias = bias.data;
    p.bias_shape = s;
  }
  if (sinks_) {
    const Tensor<float> sinks = call.input<float>(sinks_, "sinks");
    if (sinks.shape.elements() != heads_) refuse("sinks", sinks.shape, "[" + std::to_string(heads_) + "]");
    p.sinks = sinks.data;
  }
}

void CachedAttentionOp::run(Call& call) const {
  Problem p = problem(call);
  const auto dim = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  float* out = call.output(0, {dim(p.batch), dim(p.rows), dim(heads_ * p.value_depth)});
  const Shape keys{dim(p.batch), dim(kv_heads_), dim(p.present_rows), dim(p.depth)};
  const Shape values{dim(p.batch), dim(kv_heads_), dim(p.present_rows), dim(p.value_depth)};
  p.present_key = call.output_if_wanted(1, keys);
  p.present_value = call.output_if_wanted(2, values);
  if (p.batch == 0 || p.rows == 0) return;
  Layout layout;
  const std::size_t at_q = layout.add<float>(p.cos ? p.batch * p.rows * heads_ * p.depth : 0);
  const std::size_t at_k = layout.add<float>(p.present_key ? 0 : keys.elements());
  const std::size_t at_v = layout.add<float>(p.present_value ? 0 : values.elements());
  std::uint8_t* memory = scratch<CachedAttentionScratch>(layout.bytes());
  if (!p.present_key) p.present_key = reinterpret_cast<float*>(memory + at_k);
  if (!p.present_value) p.present_value = reinterpret_cast<float*>(memory + at_v);
  const int threads = call.threads();
  CacheInputs cache{p.batch, kv_heads_, p.value_depth, p.rows, p.before.data(), p.past_value, p.past_rows,
                    {p.rows * p.v_width, p.v_width, p.value_depth}, p.v, p.present_value, p.present_rows};
  append_rows(cache, threads);
  cache.width = p.depth;
  cache.past = p.past_key;
  cache.steps = {p.rows * p.k_width, p.k_width, p.depth};
  cache.fresh = p.cos ? nullptr : p.k;
  cache.out = p.present_key;
  append_rows(cache, threads);
  if (!p.cos) return attend(p, p.q, rows_of(p.rows, p.q_width, p.depth), out, threads);
  auto* turned = reinterpret_cast<float*>(memory + at_q);
  turn(p, p.k, p.k_width, kv_heads_, p.present_key, false, threads);
  turn(p, p.q, p.q_width, heads_, turned, true, threads);
  attend(p, turned, rows_of(p.rows, heads_ * p.depth, p.depth), out, threads);
}

// Rows of queries or keys, `width` elements apart, turned: to rows side by side, or to where they are in the present.
void CachedAttentionOp::turn(const Problem& p, const float* x, std::size_t width, std::size_t heads, float* out, bool as_rows,
                             int threads) const {
  RotaryInputs in{};
  in.batch = p.alike ? p.batch : 1;
  in.heads = heads;
  in.rows = p.rows;
  in.width = p.depth;
  in.turned = 2 * p.half;
  in.interleaved = interleaved_;
  in.x_steps = {p.rows * width, p.depth, width};
  const std::size_t own = heads * p.depth;
  if (as_rows) in.out_steps = {p.rows * own, p.depth, own};
  else in.out_steps = {own * p.present_rows, p.present_rows * p.depth, p.depth};
  in.cos = p.cos;
  in.sin = p.sin;
  in.table_row = p.half;
  in.position_batch = p.rows;
  in.position_row = 1;
  for (std::size_t b = 0; b < p.batch; b += in.batch) {
    in.x = x + b * in.x_steps.batch;
    in.positions = p.positions.data() + b * p.rows;
    in.out = out + b * in.out_steps.batch + (as_rows ? 0 : p.before[b] * p.depth);
    rotary(in, threads);
  }
}

// One call of the kernel for all items that have as many keys.
void CachedAttentionOp::attend(const Problem& p, const float* q, const AttentionInputs::Steps& q_steps, float* out, int threads) const {
  AttentionInputs in{};
  in.batch = p.alike ? p.batch : 1;
  in.heads = heads_;
  in.kv_heads = kv_heads_;
  in.queries = p.rows;
  in.depth = p.depth;
  in.value_depth = p.value_depth;
  in.scale = scale_ != 0.0f ? scale_ : 1.0f / std::sqrt(static_cast<float>(std::max<std::size_t>(1, p.depth)));
  in.softcap = softcap_;
  in.causal = true;
  in.window = window_;
  in.sinks = p.sinks;
  in.q_steps = q_steps;
  in.k_steps = {kv_heads_ * p.present_rows * p.depth, p.depth, p.present_rows * p.depth};
  in.v_steps = {kv_heads_ * p.present_rows * p.value_depth, p.value_depth, p.present_rows * p.value_depth};
  in.out_steps = rows_of(p.rows, heads_ * p.value_depth, p.value_depth);
  if (p.bias) {
    in.bias_key = 1;
    in.bias_query = p.total;
    in.bias_head = p.bias_shape[1] == 1 ? 0 : p.rows * p.total;
    in.bias_batch = p.bias_shape[0] == 1 ? 0 : size(p.bias_shape[1]) * p.rows * p.total;
  }
  for (std::size_t b = 0; b < p.batch; b += in.batch) {
    in.keys = p.before[b] + p.rows;
    in.offset = static_cast<std::ptrdiff_t>(p.before[b]);
    in.q = q + b * in.q_steps.batch;
    in.k = p.present_key + b * in.k_steps.batch;
    in.v = p.present_value + b * in.v_steps.batch;
    in.bias = p.bias ? p.bias + b * in.bias_batch : nullptr;
    in.out = out + b * in.out_steps.batch;
    attention(in, threads);
  }
}

void CachedAttentionOp::infer(const Inference& inference) {
  const Inference::Dims q = inference.input(0);
  if (q.size() != 3) return;
  const std::int64_t heads = inference.integer("heads", 1), kv_heads = inference.integer("kv_heads", 1);
  const std::string given = " " + inference.text("given", "") + " ";
  const bool packed = given.find(" key ") == std::string::npos;
  const std::int64_t all = packed ? heads + 2 * kv_heads : heads;
  Inference::Dim depth, value_depth, width;
  if (all > 0 && q[2].value >= 0) depth = Inference::known(q[2].value / all);
  if (packed) value_depth = depth;
  else if (const Inference::Dims v = inference.input(4); v.size() == 3 && v[2].value >= 0 && kv_heads > 0)
    value_depth = Inference::known(v[2].value / kv_heads);
  if (value_depth.value >= 0) width = Inference::known(heads * value_depth.value);
  inference.output(0, {q[0], q[1], width});
  const std::int64_t outputs = std::min<std::int64_t>(inference.integer("outputs", 1), kOutputs);
  if (outputs > 1) inference.output(1, {q[0], Inference::known(kv_heads), {}, depth});
  if (outputs > 2) inference.output(2, {q[0], Inference::known(kv_heads), {}, value_depth});
}

}  // namespace octavo::ort
