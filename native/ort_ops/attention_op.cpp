#include "ort_ops/attention_op.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace octavo::ort {
namespace {

constexpr std::int64_t kAsItIs = 0, kRest = -1, kSizeOfQ = -2;  // in the attribute `shape`
constexpr std::int64_t kLast = 2;                               // of the attribute `causal`: the last query sees the last key
constexpr std::int64_t kWeights = 1, kBias = 2;                 // of the attribute `guard`

void expect_equal(std::int64_t a, std::int64_t b, const Tensor<float>& x, const char* x_name, const Tensor<float>& y,
                  const char* y_name, const char* what) {
  if (a != b)
    throw Error(std::string(x_name) + " has shape " + x.shape.text() + " and " + y_name + " " + y.shape.text() + "; their " +
                what + " has to be the same");
}

// [lead..., heads, queries, keys]
Shape joined(const Shape& lead, std::int64_t heads, std::int64_t queries, std::int64_t keys) {
  if (lead.rank + 3 > Shape::kMost) throw Error("Q, K and V have too many dimensions");
  Shape all = lead;
  for (const std::int64_t size : {heads, queries, keys}) all[all.rank++] = size;
  return all;
}

// What the attribute `shape` makes of [B, S, heads * E], where Q is [batch, queries, ...].
Shape shape_of(const std::vector<std::int64_t>& wanted, const Shape& whole, const Shape& q) {
  Shape shape = whole;
  for (std::size_t i = 0; i < whole.rank; ++i)
    if (wanted[i] != kAsItIs) shape[i] = wanted[i] == kSizeOfQ ? q[i] : std::abs(wanted[i]);  // 1 for what is left
  check_extent(shape, "the output");
  const std::size_t elements = whole.elements(), known = shape.elements();
  for (std::size_t i = 0; i < whole.rank; ++i)
    if (wanted[i] == kRest) shape[i] = known > 0 ? static_cast<std::int64_t>(elements / known) : whole[i];
  if (shape.elements() != elements)
    throw Error("the bias or the batch of K and V make the output " + whole.text() + ", and the attribute shape asks for " +
                shape.text() + "; give a bias that is no larger than the products of Q and K");
  return shape;
}

// [batch, heads, S, T] of [batch * heads, S, T], of which there may be one for all.
Shape parted(const Shape& joined, std::int64_t heads) {
  if (joined.rank != 3 || joined[0] == 1 || heads == 0) return joined;
  if (joined[0] % heads != 0)
    throw Error("bias has shape " + joined.text() + "; its first dimension has to be a multiple of " + std::to_string(heads) + " heads");
  return {joined[0] / heads, heads, joined[1], joined[2]};
}

}  // namespace

// A run: its inputs, and the sizes of all that they make.
struct AttentionOp::Problem {
  HeadMatrices q, k, v;
  const float* bias = nullptr;
  const std::uint8_t* mask = nullptr;
  const float* sinks = nullptr;
  Shape bias_shape, mask_shape;
  Shape lead, out;  // leading axes of the output, and all with its heads outside
  std::int64_t heads = 0, kv_heads = 0, queries = 0;
  std::size_t rank = 0;  // of the output, where no axes are missing
};

AttentionOp::AttentionOp(const Node& node)
    : heads_(node.size("heads", 0)),
      scale_(node.number("scale", 0.0f)),
      softcap_(node.number("softcap", 0.0f)),
      fill_{node.number("fill", 0.0f), node.integer("replaces", 0) != 0},
      shape_(node.integers("shape", {kAsItIs, kAsItIs, kRest})),
      groups_(std::max<std::size_t>(1, static_cast<std::size_t>(node.integer("groups", 1)))),
      causal_(node.integer("causal", 0)),
      guard_(node.integer("guard", 0)),
      window_(static_cast<std::size_t>(std::max<std::int64_t>(0, node.integer("window", 0)))),
      filled_(node.integer("hidden", 0) != 0),
      fits_(node.integer("fits", 0) != 0),
      joined_bias_(node.integer("joined_bias", 0) != 0),
      bfloat16_(node.integer("bfloat16", 0) != 0) {
  if (!std::isfinite(scale_)) node.fail("the attribute scale is not finite");
  if (!(softcap_ >= 0.0f) || !std::isfinite(softcap_)) node.fail("the attribute softcap is not finite, or below 0");
  if (fill_.value == 0.0f) fill_.value = std::numeric_limits<float>::lowest();
  if (!(fill_.value < 0.0f) || !std::isfinite(fill_.value)) node.fail("the attribute fill is not a finite number below 0");
  const auto most_rests = std::count(shape_.begin(), shape_.end(), kRest);
  if (shape_.size() != 3 || most_rests > 1 || *std::min_element(shape_.begin(), shape_.end()) < kSizeOfQ)
    node.fail("the attribute shape has to be three sizes: 0, -2, above 0, or once -1");
  const auto layouts = node.integers("layouts", {0, 0, 0, 0});
  if (layouts.size() != 4 || *std::min_element(layouts.begin(), layouts.end()) < 0 ||
      *std::max_element(layouts.begin(), layouts.end()) > static_cast<int>(HeadLayout::kOutside))
    node.fail("the attribute layouts has to be four numbers in 0..2");
  layouts_ = layouts_of(layouts);
  if (heads_ == 0 && std::count(layouts_.begin(), layouts_.end() - 1, HeadLayout::kRows)) node.fail("the attribute heads is 0, not in 1..2147483647");
  if (heads_ % groups_ != 0) node.fail("the attribute groups has to divide heads");
  if (causal_ < 0 || causal_ > kLast) node.fail("the attribute causal has to be 0, 1 or 2");
  if (guard_ < 0 || guard_ > kBias) node.fail("the attribute guard has to be 0, 1 or 2");
  std::size_t next = 3;
  for (const std::string& name : given_inputs(node, {"bias", "mask", "sinks"}))
    (name == "bias" ? bias_at_ : name == "mask" ? mask_at_ : sinks_at_) = next++;
  if (next == 3 && node.inputs() > 3) bias_at_ = 3;
}

AttentionOp::Problem AttentionOp::problem(const Call& call) const {
  const Tensor<float> q = call.input<float>(0, "Q"), k = call.input<float>(1, "K"), v = call.input<float>(2, "V");
  Problem p;
  p.q = head_matrices(q, layouts_[0], heads_, "Q");
  p.k = head_matrices(k, layouts_[1], heads_ / groups_, "K");
  p.v = head_matrices(v, layouts_[2], heads_ / groups_, "V");
  expect_equal(p.q.depth(), p.k.depth(), q, "Q", k, "K", "depth of a head");
  expect_equal(p.k.length(), p.v.length(), k, "K", v, "V", "length");
  p.kv_heads = std::max(p.k.heads(), p.v.heads());
  p.heads = p.q.heads() == 1 ? p.kv_heads : p.q.heads();
  if ((p.k.heads() != 1 && p.k.heads() != p.kv_heads) || (p.v.heads() != 1 && p.v.heads() != p.kv_heads) ||
      (p.kv_heads == 0 ? p.heads != 0 : p.heads % p.kv_heads != 0))
    throw Error("Q has " + std::to_string(p.q.heads()) + " heads, K " + std::to_string(p.k.heads()) + " and V " +
                std::to_string(p.v.heads()) + "; those of K and V have to divide those of Q");
  const Shape products = joined(broadcast(p.q.lead(), "Q", p.k.lead(), "K"), p.heads, p.q.length(), p.k.length());
  Shape all = products;
  p.rank = std::max({p.q.rank, p.k.rank, p.v.rank});
  if (bias_at_) {
    const Tensor<float> bias = call.input<float>(bias_at_, "bias");
    p.bias = bias.data;
    p.bias_shape = joined_bias_ ? parted(bias.shape, p.heads) : bias.shape;
    all = broadcast(all, "the product", p.bias_shape, "bias");
  }
  if (mask_at_) {
    const AnyTensor mask = call.any_input(mask_at_, "mask");
    if (mask.type != ElementType::kBool) throw Error(std::string("mask is ") + name_of(mask.type) + "; it has to be bool");
    p.mask = static_cast<const std::uint8_t*>(mask.data);
    p.mask_shape = mask.shape;
    all = broadcast(all, "the product", mask.shape, "mask");
  }
  for (const auto& [shape, name] : {std::pair(p.bias_shape, "bias"), std::pair(p.mask_shape, "mask")}) {
    p.rank = std::max(p.rank, shape.rank);
    if (shape.last() != 1 && shape.last() != p.k.length())
      throw Error(std::string(name) + " has shape " + shape.text() + " for " + std::to_string(p.k.length()) +
                  " keys; its last dimension has to be that, or 1");
  }
  if (fits_ && all != products)
    throw Error("the products have shape " + products.text() + ", and bias or mask make them " + all.text() +
                "; give one that is no larger");
  p.lead = all;
  p.lead.rank -= 3;
  p.lead = broadcast(p.lead, "Q", p.v.lead(), "V");
  p.queries = all[all.rank - 2];
  if (all[all.rank - 3] != p.heads) {  // of one head that a bias makes more
    p.heads = all[all.rank - 3];
    p.kv_heads = 1;
  }
  if (sinks_at_) {
    const Tensor<float> sinks = call.input<float>(sinks_at_, "sinks");
    if (sinks.shape != Shape{p.heads})
      throw Error("sinks has shape " + sinks.shape.text() + "; it has to be " + Shape{p.heads}.text() + ", a number for each head");
    p.sinks = sinks.data;
  }
  p.out = joined(p.lead, p.heads, p.queries, p.v.depth());
  check_extent(p.out, "the output");
  return p;
}

float* AttentionOp::output(const Call& call, const Problem& p) const {
  if (layouts_[3] == HeadLayout::kOutside) {
    Shape seen;
    seen.rank = std::min(p.out.rank, p.rank);
    for (std::size_t i = 0; i < seen.rank; ++i) seen[i] = p.out[p.out.rank - seen.rank + i];
    return call.output(0, seen);
  }
  if (p.lead.rank > 1) throw Error("the output would have the leading dimensions " + p.lead.text() + "; its layout has one");
  const std::int64_t batch = p.lead.rank ? p.lead[0] : 1;
  if (layouts_[3] == HeadLayout::kInside) return call.output(0, {batch, p.queries, p.heads, p.v.depth()});
  const Shape q{p.q.lead().rank ? p.q.shape[0] : 1, p.q.length(), p.q.heads() * p.q.depth()};
  return call.output(0, shape_of(shape_, {batch, p.queries, p.heads * p.v.depth()}, q));
}

void AttentionOp::run(Call& call) const {
  const Problem p = problem(call);
  AttentionInputs in{};
  in.heads = static_cast<std::size_t>(p.heads);
  in.kv_heads = static_cast<std::size_t>(p.kv_heads);
  in.queries = static_cast<std::size_t>(p.queries);
  in.keys = static_cast<std::size_t>(p.k.length());
  in.depth = static_cast<std::size_t>(p.q.depth());
  in.value_depth = static_cast<std::size_t>(p.v.depth());
  in.scale = scale_ != 0.0f ? scale_ : 1.0f / std::sqrt(static_cast<float>(std::max<std::size_t>(1, in.depth)));
  in.softcap = softcap_;
  in.bfloat16 = bfloat16_;
  in.causal = causal_ != 0;
  in.offset = causal_ == kLast ? static_cast<std::ptrdiff_t>(in.keys) - static_cast<std::ptrdiff_t>(in.queries) : 0;
  in.window = window_;
  in.sinks = p.sinks;
  in.out = output(call, p);
  if (p.out.elements() == 0) return;
  const std::size_t row = in.heads * in.value_depth;
  in.out_steps = layouts_[3] == HeadLayout::kOutside
                     ? AttentionInputs::Steps{in.queries * row, in.value_depth, in.queries * in.value_depth}
                     : AttentionInputs::Steps{in.queries * row, row, in.value_depth};
  run_each(call, p, in);
}

// One call of the kernel for each place along the leading axes but the last, which is its batch.
void AttentionOp::run_each(Call& call, const Problem& p, AttentionInputs in) const {
  const std::size_t axes = p.lead.rank, outer = axes ? axes - 1 : 0;
  const Shape all = joined(p.lead, p.heads, p.queries, p.k.length());
  const Strides bias = strides_in(p.bias_shape, all), mask = strides_in(p.mask_shape, all);
  in.batch = axes ? static_cast<std::size_t>(p.lead[axes - 1]) : 1;
  const auto inner = [axes](const HeadMatrices& x, const Shape& lead) {
    const std::size_t n = x.shape.rank;
    return AttentionInputs::Steps{axes ? x.lead_step(lead, axes - 1) : 0, x.steps[n - 2], x.steps[n - 3]};
  };
  in.q_steps = inner(p.q, p.lead);
  in.k_steps = inner(p.k, p.lead);
  in.v_steps = inner(p.v, p.lead);
  in.bias_batch = axes ? bias[axes - 1] : 0;
  in.mask_batch = axes ? mask[axes - 1] : 0;
  for (const auto& [to, step] : {std::pair(&in.bias_head, bias[axes]), std::pair(&in.bias_query, bias[axes + 1]),
                                 std::pair(&in.bias_key, bias[axes + 2]), std::pair(&in.mask_head, mask[axes]),
                                 std::pair(&in.mask_query, mask[axes + 1]), std::pair(&in.mask_key, mask[axes + 2])})
    *to = step;
  float* out = in.out;
  for (std::size_t i = 0, count = p.lead.product(outer); i < count; ++i) {
    std::size_t rest = i;
    in.q = p.q.data;
    in.k = p.k.data;
    in.v = p.v.data;
    in.bias = p.bias;
    in.mask = p.mask;
    for (std::size_t axis = outer; axis-- > 0;) {
      const std::size_t at = rest % static_cast<std::size_t>(p.lead[axis]);
      rest /= static_cast<std::size_t>(p.lead[axis]);
      in.q += at * p.q.lead_step(p.lead, axis);
      in.k += at * p.k.lead_step(p.lead, axis);
      in.v += at * p.v.lead_step(p.lead, axis);
      if (in.bias) in.bias += at * bias[axis];
      if (in.mask) in.mask += at * mask[axis];
    }
    in.out = out + i * in.batch * in.out_steps.batch;
    attention(in, call.threads());
    if (filled_) fill_where_hidden(in, fill_);
    if (guard_ == kWeights) zero_where_not_a_number(in);
    if (guard_ == kBias) zero_where_hidden(in);
  }
}

namespace {

// What the attribute `shape` makes of `whole`, as far as it is known.
Inference::Dims inferred_rows(const Inference& inference, const Inference::Dims& whole, const Inference::Dims& q) {
  std::vector<std::int64_t> wanted = inference.integers("shape");
  if (wanted.size() != 3) wanted = {kAsItIs, kAsItIs, kRest};
  Inference::Dims found = whole;
  bool unchanged = true;  // but for the size that is left
  for (std::size_t i = 0; i < 3; ++i) {
    if (wanted[i] == kSizeOfQ) found[i] = q[i];
    if (wanted[i] > 0) found[i] = Inference::known(wanted[i]);
    if (wanted[i] != kRest && wanted[i] != kAsItIs) unchanged &= same_size(found[i], whole[i]);
  }
  for (std::size_t i = 0; i < 3; ++i)
    if (wanted[i] == kRest && !unchanged) found[i] = {};
  return found;
}

}  // namespace

void AttentionOp::infer(const Inference& inference) {
  using Dims = Inference::Dims;
  const HeadLayouts layouts = layouts_of(inference.integers("layouts"));
  const std::int64_t heads = inference.integer("heads", 1);
  const std::int64_t kv_heads = heads / std::max<std::int64_t>(1, inference.integer("groups", 1));
  Dims q = inferred_matrices(inference.input(0), layouts[0], heads);
  const Dims k = inferred_matrices(inference.input(1), layouts[1], kv_heads);
  const Dims v = inferred_matrices(inference.input(2), layouts[2], kv_heads);
  if (q.size() < 2 || k.size() < 2 || v.size() < 2) return;
  const auto lead_of = [](const Dims& x) { return x.size() > 3 ? Dims(x.begin(), x.end() - 3) : Dims{}; };
  const auto heads_of = [](const Dims& x) { return x.size() > 2 ? x[x.size() - 3] : Inference::known(1); };
  const Inference::Dim width = v.back();
  Dims all = broadcast(lead_of(q), lead_of(k));
  all.push_back(heads_of(q).value == 1 ? heads_of(k) : heads_of(q));
  all.push_back(q[q.size() - 2]);
  all.push_back(k[k.size() - 2]);
  std::size_t rank = std::max({q.size(), k.size(), v.size()});
  const bool sinks = (" " + inference.text("given", "")).find(" sinks") != std::string::npos;  // the last of the inputs
  for (std::size_t i = 3; i + (sinks ? 1 : 0) < inference.inputs(); ++i) {
    Dims added = inference.input(i);
    if (inference.integer("joined_bias", 0) && added.size() == 3) added[0] = {};
    if (added.empty()) added.resize(all.size());  // of which nothing is known
    rank = std::max(rank, added.size());
    all = broadcast(all, added);
  }
  const std::size_t n = all.size();
  Dims lead = broadcast(Dims(all.begin(), all.end() - 3), lead_of(v));
  const Inference::Dim all_heads = all[n - 3], queries = all[n - 2];
  if (layouts[3] == HeadLayout::kOutside) {
    lead.insert(lead.end(), {all_heads, queries, width});
    inference.output(0, Dims(lead.end() - static_cast<std::ptrdiff_t>(std::min(rank, lead.size())), lead.end()));
    return;
  }
  if (lead.size() > 1) return;
  lead.resize(1, Inference::known(1));
  if (layouts[3] == HeadLayout::kInside) return inference.output(0, {lead[0], queries, all_heads, width});
  Dims whole{lead[0], queries, {}};
  if (all_heads.value > 0 && width.value >= 0) whole[2] = Inference::product(width, all_heads);
  else if (layouts[2] == HeadLayout::kRows && same_size(all_heads, heads_of(v))) whole[2] = inference.input(2)[2];
  q = {q.size() > 3 ? q[0] : Inference::known(1), q[q.size() - 2], {}};
  inference.output(0, inferred_rows(inference, whole, q));
}

}  // namespace octavo::ort
