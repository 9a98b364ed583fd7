#include "layers/program_layers.h"

#include <algorithm>
#include <string>

#include "contract/tables.h"
#include "layers/gathered_product.h"
#include "layers/norm.h"
#include "layers/rotary.h"
#include "runtime/arena.h"

namespace octavo {
namespace {

// `value`, or where its rows do not lie equally far apart, memory at `staged` that it is copied to.
void stage_rows(Call& call, int value, int staged) {
  const View& v = call.at(value);
  if (RowsOf(v).regular) return;
  call.make(staged, v.sizes, v.axes);
}
void expect_sizes(Call& call, int value, const View& like, const char* what) {
  if (!call.at(value).same_sizes(like)) call.fail(value, std::string(what) + " needs " + like.text());
}

void expect_vector(Call& call, int value, std::size_t size, const char* what) {
  call.expect_type(value, ValueType::kFloat32, what);
  const View& v = call.at(value);
  if (v.axes != 1 || v.sizes[0] != size || !v.side_by_side())
    call.fail(value, std::string(what) + " needs " + std::to_string(size) + " elements side by side");
}

// What several values of indices name of that many rows.
Span span_of_all(Call& call, const std::vector<int>& indices, std::size_t rows) {
  Span all{rows, 0};
  for (const int value : indices) {
    const Span one = span_of(call.at(value), rows);
    if (one.begin == one.end) continue;
    all = {std::min(all.begin, one.begin), std::max(all.end, one.end)};
  }
  return all.end == 0 ? Span{} : all;
}

}  // namespace

LinearStep::LinearStep(Parts parts) : p_(std::move(parts)) {
  reads = {p_.x};
  if (p_.residual >= 0) reads.push_back(p_.residual);
  reads.insert(reads.end(), p_.span.begin(), p_.span.end());
  for (const int value : {p_.norm.weight, p_.norm.bias})
    if (value >= 0) reads.push_back(value);
  makes = p_.made;
  makes.push_back(p_.rows);
  makes.push_back(p_.added);
  if (p_.norm.made >= 0) makes.push_back(p_.norm.made);
}

void LinearStep::resolve(Call& call) const {
  const View& x = call.at(p_.x);
  call.expect_type(p_.x, ValueType::kFloat32, "a linear layer");
  const std::size_t k = p_.layers[0]->weight.k;
  if (x.axes == 0 || x.last() != k) call.fail(p_.x, "the layer takes " + std::to_string(k) + " inputs");
  stage_rows(call, p_.x, p_.rows);
  if (p_.norm.weight >= 0) expect_vector(call, p_.norm.weight, k, "the weight");
  if (p_.norm.bias >= 0) expect_vector(call, p_.norm.bias, k, "the bias");
  if (p_.norm.made >= 0) call.make(p_.norm.made, x.sizes, x.axes);
  View out = x;
  for (std::size_t i = 0; i < p_.made.size(); ++i) {
    const std::size_t n = p_.layers[i]->weight.n;
    out.sizes[out.axes - 1] = n;
    call.make(p_.made[i], out.sizes, out.axes);
    // About a nanosecond for 200 products; a gate has two layers.
    call.work += static_cast<double>(out.count()) * static_cast<double>(k) * (p_.gated ? 0.01 : 0.005);
  }
  if (p_.residual < 0) return;
  call.expect_type(p_.residual, ValueType::kFloat32, "the residual");
  expect_sizes(call, p_.residual, out, "the residual");
  stage_rows(call, p_.residual, p_.added);
}

NormRows LinearStep::norm_of(Call& call, const Rows& rows) const {
  NormRows norm;
  norm.kind = p_.norm.kind;
  norm.x = static_cast<const float*>(rows.x);
  norm.rows = rows.rows;
  norm.columns = p_.layers[0]->weight.k;
  norm.stride = rows.stride;
  norm.eps = p_.norm.eps;
  if (p_.norm.weight >= 0) norm.weight = call.at(p_.norm.weight).as<float>();
  if (p_.norm.bias >= 0) norm.bias = call.at(p_.norm.bias).as<float>();
  if (p_.norm.made >= 0) norm.out = call.at(p_.norm.made).as<float>();
  norm.out_stride = norm.columns;
  return norm;
}

void LinearStep::run(Call& call) const {
  const View& x = call.staged(p_.x, p_.rows);
  const RowsOf rows(x);
  Rows in;
  in.x = x.data;
  in.rows = rows.rows;
  in.stride = rows.stride;
  constexpr std::size_t kMost = 8;
  Output outs[kMost];
  for (std::size_t i = 0; i < p_.made.size(); ++i) {
    outs[i].data = call.at(p_.made[i]).data;
    outs[i].stride = call.at(p_.made[i]).last();
    outs[i].activation = &p_.activations[i];
  }
  if (!p_.span.empty()) {
    const Span some = span_of_all(call, p_.span, rows.rows);
    in.x = x.as<float>() + some.begin * in.stride;
    in.rows = some.end - some.begin;
    for (std::size_t i = 0; i < p_.made.size(); ++i) outs[i].data = call.at(p_.made[i]).as<float>() + some.begin * outs[i].stride;
  }
  const NormRows norm = norm_of(call, in);
  if (p_.norm.asked) in.norm = &norm;
  if (p_.gated) return gated_linear(*p_.layers[0], p_.activations[0], *p_.layers[1], in, outs[0], call.threads);
  if (p_.residual >= 0) {
    const View& added = call.staged(p_.residual, p_.added);
    outs[0].residual = added.data;
    outs[0].residual_stride = RowsOf(added).stride;
  }
  linear(p_.layers.data(), p_.layers.size(), in, outs, call.threads);
}

NormStep::NormStep(Parts parts) : p_(parts) {
  for (const int value : {p_.x, p_.residual, p_.weight, p_.bias})
    if (value >= 0) reads.push_back(value);
  for (const int value : {p_.sum, p_.made, p_.rows, p_.added})
    if (value >= 0) makes.push_back(value);
}

void NormStep::resolve(Call& call) const {
  const View& x = call.at(p_.x);
  call.expect_type(p_.x, ValueType::kFloat32, "a norm");
  if (x.axes == 0) call.fail(p_.x, "a norm needs an axis");
  if (p_.weight >= 0) expect_vector(call, p_.weight, x.last(), "the weight");
  if (p_.bias >= 0) expect_vector(call, p_.bias, x.last(), "the bias");
  stage_rows(call, p_.x, p_.rows);
  if (p_.residual >= 0) {
    call.expect_type(p_.residual, ValueType::kFloat32, "the residual");
    expect_sizes(call, p_.residual, x, "the residual");
    stage_rows(call, p_.residual, p_.added);
    call.make(p_.sum, x.sizes, x.axes);
  }
  call.make(p_.made, x.sizes, x.axes);
  call.work += static_cast<double>(x.count()) * 0.4;
}

void NormStep::run(Call& call) const {
  const View& x = call.staged(p_.x, p_.rows);
  const RowsOf rows(x);
  NormRows in;
  in.kind = p_.kind;
  in.x = x.as<float>();
  in.rows = rows.rows;
  in.columns = x.last();
  in.stride = rows.stride;
  if (p_.residual >= 0) {
    const View& added = call.staged(p_.residual, p_.added);
    in.residual = added.as<float>();
    in.residual_stride = RowsOf(added).stride;
    in.sum = call.at(p_.sum).as<float>();
    in.sum_stride = in.columns;
  }
  if (p_.weight >= 0) in.weight = call.at(p_.weight).as<float>();
  if (p_.bias >= 0) in.bias = call.at(p_.bias).as<float>();
  in.eps = p_.eps;
  in.out = call.at(p_.made).as<float>();
  in.out_stride = in.columns;
  norm(in, call.threads);
}

RotaryStep::RotaryStep(Parts parts) : p_(parts) {
  reads = {p_.x, p_.cos, p_.sin};
  makes = {p_.made, p_.rows, p_.cosines, p_.sines};
}

void RotaryStep::resolve(Call& call) const {
  const View& x = call.at(p_.x);
  call.expect_type(p_.x, ValueType::kFloat32, "rotary");
  if (x.axes != 4) call.fail(p_.x, "rotary needs four axes");
  if (!x.side_by_side()) call.make(p_.rows, x.sizes, x.axes);
  for (const int table : {p_.cos, p_.sin}) {
    const View& t = call.at(table);
    call.expect_type(table, ValueType::kFloat32, "a table of rotary");
    const bool shaped = t.axes >= 2 && t.axes <= 4 && t.sizes[t.axes - 2] == x.sizes[2] && t.last() <= x.last() && t.last() % 2 == 0 &&
                        (t.axes < 3 || t.sizes[0] == 1 || t.sizes[0] == x.sizes[0]) && (t.axes < 4 || t.sizes[1] == 1);
    if (!shaped) call.fail(table, "a table of rotary for " + x.text() + " needs [batch or 1, 1, rows, R], R at most its width and even");
  }
  if (!call.at(p_.cos).same_sizes(call.at(p_.sin))) call.fail(p_.sin, "cos and sin need the same sizes");
  const View &cos = call.at(p_.cos), &sin = call.at(p_.sin);
  if (!cos.side_by_side() || !sin.side_by_side() || !std::equal(cos.strides, cos.strides + cos.axes, sin.strides)) {
    call.make(p_.cosines, cos.sizes, cos.axes);
    call.make(p_.sines, sin.sizes, sin.axes);
  }
  View& out = call.at(p_.made);
  out.set_sizes(x.sizes, x.axes);
  out.lay_out_as(x);
  if (!out.side_by_side()) out.lay_out();
  call.take(p_.made);
  call.work += static_cast<double>(x.count()) * 0.3;
}

void RotaryStep::run(Call& call) const {
  const View &x = call.staged(p_.x, p_.rows), &out = call.at(p_.made);
  const View &cos = call.staged(p_.cos, p_.cosines), &sin = call.staged(p_.sin, p_.sines);
  RotaryInputs in{};
  in.batch = x.sizes[0];
  in.heads = x.sizes[1];
  in.rows = x.sizes[2];
  in.width = x.sizes[3];
  in.turned = cos.last();
  in.interleaved = p_.interleaved;
  in.each = true;
  in.x_steps = {x.strides[0], x.strides[1], x.strides[2]};
  in.out_steps = {out.strides[0], out.strides[1], out.strides[2]};
  in.x = x.as<float>();
  in.cos = cos.as<float>();
  in.sin = sin.as<float>();
  in.table_batch = cos.axes > 2 && cos.sizes[0] > 1 ? cos.strides[0] : 0;
  in.table_row = cos.strides[cos.axes - 2];
  in.out = out.as<float>();
  rotary(in, call.threads);
}

}  // namespace octavo
