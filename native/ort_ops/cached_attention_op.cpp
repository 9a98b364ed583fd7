#include "ort_ops/cached_attention_op.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "layers/cache.h"
#include "layers/rotary.h"
#include "ort_ops/attention_rows.h"
#include "runtime/arena.h"

namespace octavo::ort {
namespace {

constexpr std::size_t kFixed = 3;  // inputs in front of those that `given` names

struct CachedAttentionScratch;

// To a present [batch][heads][to_rows][width], of a cache of more rows, the last `kept` of each item's that count.
void keep_last(const CachedAttentionProblem& p, std::size_t heads, std::size_t width, const float* cache, std::size_t rows, float* present) {
  for (std::size_t i = 0; present && i < p.batch * heads; ++i) {
    const std::size_t item = i / heads, kept = p.resident(p.keys[item]);
    const std::size_t end = p.before[item] + p.keys[item] - p.first[item];
    float* to = present + i * p.present_rows * width;
    std::memcpy(to, cache + (i * rows + end - kept) * width, kept * width * sizeof(float));
    std::fill(to + kept * width, to + p.present_rows * width, 0.0f);
  }
}

}  // namespace

CachedAttentionOp::CachedAttentionOp(const Node& node)
    : scale_(node.number("scale", 0.0f)), softcap_(node.number("softcap", 0.0f)), interleaved_(node.integer("interleaved", 0) != 0) {
  form_.heads = node.size("heads");
  form_.kv_heads = node.size("kv_heads");
  form_.window = static_cast<std::size_t>(std::max<std::int64_t>(0, node.integer("window", 0)));
  form_.evicts = node.integer("evicts", 0) != 0;
  if (form_.heads % form_.kv_heads != 0) node.fail("the attribute kv_heads has to divide heads");
  if (!std::isfinite(scale_)) node.fail("the attribute scale is not finite");
  if (!(softcap_ >= 0.0f) || !std::isfinite(softcap_)) node.fail("the attribute softcap is not finite, or below 0");
  const std::size_t outputs = node.size("outputs", 1, kOutputs);
  if (outputs != node.outputs())
    node.fail("the attribute outputs is " + std::to_string(outputs) + "; the node has " + std::to_string(node.outputs()));
  read_given(node);
  if (form_.evicts && (form_.window == 0 || !form_.past_key || form_.bias))
    node.fail("the attribute evicts is 1; that takes a window, past_key and past_value, and no bias");
}

void CachedAttentionOp::read_given(const Node& node) {
  const std::pair<const char*, std::size_t*> places[] = {
      {"key", &form_.key}, {"value", &form_.value},         {"past_key", &form_.past_key}, {"past_value", &form_.past_value},
      {"cos", &form_.cos}, {"sin", &form_.sin},             {"positions", &form_.positions}, {"bias", &form_.bias},
      {"sinks", &form_.sinks}};
  const std::vector<std::string> given =
      given_inputs(node, {"key", "value", "past_key", "past_value", "cos", "sin", "positions", "bias", "sinks"});
  std::size_t at = kFixed;
  for (const std::string& name : given) {
    for (const auto& [known, place] : places)
      if (name == known) *place = at;
    ++at;
  }
  if (node.inputs() != at)
    node.fail("the attribute given names " + std::to_string(given.size()) + " inputs behind total; the node has " +
              std::to_string(node.inputs() - std::min(node.inputs(), kFixed)));
  const auto both = [&](std::size_t a, std::size_t b, const char* names) {
    if ((a == 0) != (b == 0)) node.fail(std::string("the attribute given has one of ") + names + "; it has to have both or none");
  };
  both(form_.key, form_.value, "key and value");
  both(form_.past_key, form_.past_value, "past_key and past_value");
  both(form_.cos, form_.sin, "cos and sin");
  if (form_.positions && !form_.cos) node.fail("the attribute given has positions; it has to have cos and sin too");
}

void CachedAttentionOp::run(Call& call) const {
  const CachedAttentionProblem p(call, form_);
  const auto dim = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  float* out = call.output(0, {dim(p.batch), dim(p.rows), dim(form_.heads * p.value_depth)});
  const auto present = [&](std::size_t index, std::size_t depth) {
    return call.output_if_wanted(index, {dim(p.batch), dim(form_.kv_heads), dim(p.present_rows), dim(depth)});
  };
  float *keys = present(1, p.depth), *values = present(2, p.value_depth);
  if (p.batch == 0) return;
  // Rows that do not fit, and presents that nobody reads, are made in memory of our own.
  const bool fits = p.fits();
  const std::size_t rows = fits ? p.present_rows : *std::max_element(p.before.begin(), p.before.end()) + p.rows;
  const std::size_t all = p.batch * form_.kv_heads * rows, q_width = form_.heads * p.depth;
  Layout layout;
  const std::size_t at_q = layout.add<float>(p.cos ? p.batch * p.rows * q_width : 0);
  const std::size_t at_k = layout.add<float>(fits && keys ? 0 : all * p.depth);
  const std::size_t at_v = layout.add<float>(fits && values ? 0 : all * p.value_depth);
  std::uint8_t* memory = scratch<CachedAttentionScratch>(layout.bytes());
  const auto own = [memory](std::size_t offset) { return reinterpret_cast<float*>(memory + offset); };
  const Cache cache{fits && keys ? keys : own(at_k), fits && values ? values : own(at_v), rows};
  const int threads = call.threads();
  append(p, cache, threads);
  if (p.cos && p.rows > 0) {
    const std::size_t head = rows * p.depth;
    turn(p, p.k, p.k_width, form_.kv_heads, {form_.kv_heads * head, p.depth, head}, p.depth, cache.keys, threads);
    turn(p, p.q, p.q_width, form_.heads, {p.rows * q_width, q_width, p.depth}, 0, own(at_q), threads);
  }
  if (p.rows > 0) attend(p, cache, p.cos ? own(at_q) : p.q, p.cos ? q_width : p.q_width, out, threads);
  if (fits) return;
  keep_last(p, form_.kv_heads, p.depth, cache.keys, rows, keys);
  keep_last(p, form_.kv_heads, p.value_depth, cache.values, rows, values);
}

// Past rows and new ones, but for new keys that are turned first.
void CachedAttentionOp::append(const CachedAttentionProblem& p, const Cache& cache, int threads) const {
  const CacheInputs::Steps k_steps{p.rows * p.k_width, p.k_width, p.depth}, v_steps{p.rows * p.v_width, p.v_width, p.value_depth};
  append_rows({p.batch, form_.kv_heads, p.depth, p.rows, p.before.data(), p.past_key, p.past_rows, k_steps, p.cos ? nullptr : p.k,
               cache.keys, cache.rows}, threads);
  append_rows({p.batch, form_.kv_heads, p.value_depth, p.rows, p.before.data(), p.past_value, p.past_rows, v_steps, p.v, cache.values,
               cache.rows}, threads);
}

// Rows of queries or keys, `width` elements apart, turned: to steps of their own, behind as many rows of `to_row` elements
// as came before.
void CachedAttentionOp::turn(const CachedAttentionProblem& p, const float* x, std::size_t width, std::size_t heads,
                             const AttentionInputs::Steps& to, std::size_t to_row, float* out, int threads) const {
  RotaryInputs in{};
  in.batch = p.alike ? p.batch : 1;
  in.heads = heads;
  in.rows = p.rows;
  in.width = p.depth;
  in.turned = 2 * p.half;
  in.interleaved = interleaved_;
  in.x_steps = {p.rows * width, p.depth, width};
  in.out_steps = {to.batch, to.head, to.row};
  in.cos = p.cos;
  in.sin = p.sin;
  in.table_row = p.half;
  in.position_batch = p.rows;
  in.position_row = 1;
  for (std::size_t b = 0; b < p.batch; b += in.batch) {
    in.x = x + b * in.x_steps.batch;
    in.positions = p.positions.data() + b * p.rows;
    in.out = out + b * in.out_steps.batch + p.before[b] * to_row;
    rotary(in, threads);
  }
}

// One call of the kernel for all items that have as many keys.
void CachedAttentionOp::attend(const CachedAttentionProblem& p, const Cache& cache, const float* q, std::size_t q_width, float* out,
                               int threads) const {
  AttentionInputs in{};
  in.batch = p.alike ? p.batch : 1;
  in.heads = form_.heads;
  in.kv_heads = form_.kv_heads;
  in.queries = p.rows;
  in.depth = p.depth;
  in.value_depth = p.value_depth;
  in.scale = scale_ != 0.0f ? scale_ : 1.0f / std::sqrt(static_cast<float>(std::max<std::size_t>(1, p.depth)));
  in.softcap = softcap_;
  in.causal = true;
  in.window = form_.window;
  in.sinks = p.sinks;
  const auto steps = [&](std::size_t depth) {
    return AttentionInputs::Steps{form_.kv_heads * cache.rows * depth, depth, cache.rows * depth};
  };
  in.q_steps = {p.rows * q_width, q_width, p.depth};
  in.k_steps = steps(p.depth);
  in.v_steps = steps(p.value_depth);
  in.out_steps = {p.rows * form_.heads * p.value_depth, form_.heads * p.value_depth, p.value_depth};
  if (p.bias) {
    const std::size_t matrix = p.rows * p.total;
    in.bias_key = 1;
    in.bias_query = p.total;
    in.bias_head = p.bias_shape[1] == 1 ? 0 : matrix;
    in.bias_batch = p.bias_shape[0] == 1 ? 0 : static_cast<std::size_t>(p.bias_shape[1]) * matrix;
  }
  for (std::size_t b = 0; b < p.batch; b += in.batch) {
    in.keys = p.before[b] + p.rows;
    in.offset = static_cast<std::ptrdiff_t>(p.before[b]);
    in.q = q + b * in.q_steps.batch;
    in.k = cache.keys + b * in.k_steps.batch;
    in.v = cache.values + b * in.v_steps.batch;
    in.bias = p.bias ? p.bias + b * in.bias_batch : nullptr;
    in.out = out + b * in.out_steps.batch;
    attention(in, threads);
    zero_where_hidden(in);
  }
}

void CachedAttentionOp::infer(const Inference& inference) {
  const Inference::Dims q = inference.input(0);
  if (q.size() != 3) return;
  const std::int64_t heads = inference.integer("heads", 1), kv_heads = inference.integer("kv_heads", 1);
  if (heads < 1 || heads > INT32_MAX || kv_heads < 1 || kv_heads > INT32_MAX) return;
  const bool packed = inference.text("given", "").compare(0, 4, "key ") != 0;
  const std::int64_t all = packed ? heads + 2 * kv_heads : heads;
  Inference::Dim depth, value_depth;
  if (q[2].value >= 0) depth = Inference::known(q[2].value / all);
  if (packed) value_depth = depth;
  else if (const Inference::Dims v = inference.input(kFixed + 1); v.size() == 3 && v[2].value >= 0)
    value_depth = Inference::known(v[2].value / kv_heads);
  inference.output(0, {q[0], q[1], Inference::product(Inference::known(heads), value_depth)});
  const std::int64_t outputs = std::min<std::int64_t>(inference.integer("outputs", 1), kOutputs);
  if (outputs > 1) inference.output(1, {q[0], Inference::known(kv_heads), {}, depth});
  if (outputs > 2) inference.output(2, {q[0], Inference::known(kv_heads), {}, value_depth});
}

}  // namespace octavo::ort
