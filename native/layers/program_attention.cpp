#include <algorithm>
#include <string>
#include <utility>

#include "layers/program_layers.h"

namespace octavo {
namespace {

// Strides for batch, head, query and key of what broadcasts to [batch, heads, queries, keys].
struct Added {
  std::size_t strides[4] = {};
  bool fits = true;
  Added(const View& v, const std::size_t (&sizes)[4]) {
    fits = v.axes <= 4;
    for (std::size_t i = 0; fits && i < v.axes; ++i) {
      const std::size_t axis = 4 - v.axes + i;
      if (v.sizes[i] == 1) continue;
      fits = v.sizes[i] == sizes[axis];
      strides[axis] = v.strides[i];
    }
  }
};

AttentionInputs::Steps steps_of_view(const View& v) {
  return {v.sizes[0] == 1 ? 0 : v.strides[0], v.strides[2], v.strides[1]};
}

}  // namespace

AttentionStep::AttentionStep(Parts parts) : p_(parts) {
  reads = {p_.q, p_.k, p_.v};
  for (const int value : {p_.bias, p_.mask})
    if (value >= 0) reads.push_back(value);
  makes = {p_.made, p_.queries, p_.keys, p_.values};
}

void AttentionStep::resolve(Call& call) const {
  const View &q = call.at(p_.q), &k = call.at(p_.k), &v = call.at(p_.v);
  for (const int value : {p_.q, p_.k, p_.v}) {
    const View& one = call.at(value);
    call.expect_type(value, ValueType::kFloat32, "attention");
    if (one.axes != 4) call.fail(value, "attention needs four axes");
    if (one.sizes[0] != q.sizes[0]) call.fail(value, "attention needs the query's batch of " + std::to_string(q.sizes[0]));
  }
  if (k.sizes[3] != q.sizes[3]) call.fail(p_.k, "keys need the query's width of " + std::to_string(q.sizes[3]));
  if (v.sizes[1] != k.sizes[1] || v.sizes[2] != k.sizes[2]) call.fail(p_.v, "values need the heads and rows of the keys, " + k.text());
  if (k.sizes[1] == 0 ? q.sizes[1] != 0 : q.sizes[1] % k.sizes[1] != 0)
    call.fail(p_.k, std::to_string(q.sizes[1]) + " heads of the query do not share these");
  const std::size_t sizes[] = {q.sizes[0], q.sizes[1], q.sizes[2], k.sizes[2]};
  for (const int value : {p_.bias, p_.mask}) {
    if (value < 0) continue;
    call.expect_type(value, value == p_.bias ? ValueType::kFloat32 : ValueType::kBool, value == p_.bias ? "a bias" : "a mask");
    if (!Added(call.at(value), sizes).fits)
      call.fail(value, "does not broadcast to [" + std::to_string(sizes[0]) + ", " + std::to_string(sizes[1]) + ", " +
                           std::to_string(sizes[2]) + ", " + std::to_string(sizes[3]) + "]");
  }
  if (call.integer(p_.window) < 0) call.fail("the window is " + std::to_string(call.integer(p_.window)));
  const std::pair<int, int> inputs[] = {{p_.q, p_.queries}, {p_.k, p_.keys}, {p_.v, p_.values}};
  for (const auto& [value, staged] : inputs)
    if (!call.at(value).side_by_side()) call.make(staged, call.at(value).sizes, 4);
  View& out = call.at(p_.made);
  const std::size_t made[] = {q.sizes[0], q.sizes[1], q.sizes[2], v.sizes[3]};
  out.set_sizes(made, 4);
  // Heads lie side by side in a row.
  out.strides[3] = 1;
  out.strides[1] = std::max<std::size_t>(1, made[3]);
  out.strides[2] = out.strides[1] * std::max<std::size_t>(1, made[1]);
  out.strides[0] = out.strides[2] * std::max<std::size_t>(1, made[2]);
  call.take(p_.made);
  call.work += static_cast<double>(q.count()) * static_cast<double>(k.sizes[2]) * 0.06;
}

void AttentionStep::run(Call& call) const {
  const View &q = call.staged(p_.q, p_.queries), &k = call.staged(p_.k, p_.keys), &v = call.staged(p_.v, p_.values), &out = call.at(p_.made);
  AttentionInputs in{};
  in.batch = q.sizes[0];
  in.heads = q.sizes[1];
  in.kv_heads = k.sizes[1];
  in.queries = q.sizes[2];
  in.keys = k.sizes[2];
  in.depth = q.sizes[3];
  in.value_depth = v.sizes[3];
  in.q = q.as<float>();
  in.k = k.as<float>();
  in.v = v.as<float>();
  in.q_steps = steps_of_view(q);
  in.k_steps = steps_of_view(k);
  in.v_steps = steps_of_view(v);
  in.out_steps = {out.strides[0], out.strides[2], out.strides[1]};
  in.scale = p_.scale;
  const std::size_t sizes[] = {in.batch, in.heads, in.queries, in.keys};
  if (p_.bias >= 0) {
    const Added over(call.at(p_.bias), sizes);
    in.bias = call.at(p_.bias).as<float>();
    in.bias_batch = over.strides[0];
    in.bias_head = over.strides[1];
    in.bias_query = over.strides[2];
    in.bias_key = over.strides[3];
  }
  if (p_.mask >= 0) {
    const Added over(call.at(p_.mask), sizes);
    in.mask = call.at(p_.mask).as<std::uint8_t>();
    in.mask_batch = over.strides[0];
    in.mask_head = over.strides[1];
    in.mask_query = over.strides[2];
    in.mask_key = over.strides[3];
  }
  in.causal = p_.causal;
  in.offset = static_cast<std::ptrdiff_t>(call.integer(p_.offset));
  in.window = static_cast<std::size_t>(call.integer(p_.window));
  in.softcap = p_.softcap;
  in.bfloat16 = p_.bfloat16;
  in.out = out.as<float>();
  attention(in, call.threads);
}

}  // namespace octavo
