#include "layers/program_rows.h"

#include <algorithm>
#include <string>

#include "layers/copy.h"
#include "layers/float_matmul.h"
#include "layers/row_functions.h"

namespace octavo {
namespace {

// A float32 value with an axis; where its elements lie not side by side, it is copied to `staged`.
void stage(Call& call, int value, int staged, const char* what) {
  const View& v = call.at(value);
  call.expect_type(value, ValueType::kFloat32, what);
  if (v.axes == 0) call.fail(value, std::string(what) + " needs an axis");
  if (!v.side_by_side()) call.make(staged, v.sizes, v.axes);
}

}  // namespace

SoftmaxStep::SoftmaxStep(int x, int staged, int made) : x_(x), staged_(staged), made_(made) {
  reads = {x};
  makes = {made, staged};
}

void SoftmaxStep::resolve(Call& call) const {
  stage(call, x_, staged_, "softmax");
  const View& x = call.at(x_);
  call.make(made_, x.sizes, x.axes);
  call.work += static_cast<double>(x.count());
}

void SoftmaxStep::run(Call& call) const { softmax(call.staged(x_, staged_), call.at(made_), call.threads); }

SumStep::SumStep(int x, int staged, bool mean, bool keeps_axis, int made)
    : x_(x), staged_(staged), mean_(mean), keeps_axis_(keeps_axis), made_(made) {
  reads = {x};
  makes = {made, staged};
}

void SumStep::resolve(Call& call) const {
  stage(call, x_, staged_, name());
  View out = call.at(x_);
  out.sizes[out.axes - 1] = 1;
  call.make(made_, out.sizes, keeps_axis_ ? out.axes : out.axes - 1);
  call.work += static_cast<double>(call.at(x_).count()) * 0.2;
}

void SumStep::run(Call& call) const {
  const View& x = call.staged(x_, staged_);
  if (call.at(made_).count() == 0) return;
  row_sums(x, mean_ ? static_cast<float>(x.last()) : 1.0f, call.at(made_), call.threads);
}

MatMulStep::MatMulStep(int a, int b, int made) : a_(a), b_(b), made_(made) {
  reads = {a, b};
  makes = {made};
}

void MatMulStep::resolve(Call& call) const {
  const View &a = call.at(a_), &b = call.at(b_);
  call.expect_type(a_, ValueType::kFloat32, "matmul");
  call.expect_type(b_, ValueType::kFloat32, "matmul");
  if (a.axes < 2) call.fail(a_, "matmul needs two axes or more");
  if (b.axes < 2) call.fail(b_, "matmul needs two axes or more");
  if (b.sizes[b.axes - 2] != a.last()) call.fail(b_, "does not multiply " + a.text());
  const std::size_t axes = std::max(a.axes, b.axes);
  std::size_t sizes[kMostAxes];
  for (std::size_t i = 0; i < axes; ++i) {
    const std::size_t from_end = axes - i;
    const std::size_t one = from_end <= a.axes ? a.sizes[a.axes - from_end] : 1, other = from_end <= b.axes ? b.sizes[b.axes - from_end] : 1;
    if (from_end > 2 && one != other && one != 1 && other != 1) call.fail(b_, "does not broadcast with " + a.text());
    sizes[i] = from_end == 2 ? one : from_end == 1 ? other : one == 1 ? other : one;
  }
  const View& out = call.make(made_, sizes, axes);
  call.work += static_cast<double>(out.count()) * static_cast<double>(a.last()) * 0.025;
}

void MatMulStep::run(Call& call) const { float_matmul(call.at(a_), call.at(b_), call.at(made_), call.threads); }

CatStep::CatStep(std::vector<int> values, std::size_t axis, int made) : axis_(axis), made_(made) {
  reads = std::move(values);
  makes = {made};
}

void CatStep::resolve(Call& call) const {
  View out = call.at(reads[0]);
  out.sizes[axis_] = 0;
  for (const int value : reads) {
    const View& v = call.at(value);
    View alike = v;
    alike.sizes[axis_] = out.sizes[axis_];
    if (!alike.same_sizes(out)) call.fail(value, "does not lie beside " + call.at(reads[0]).text() + " along axis " + std::to_string(axis_));
    out.sizes[axis_] += v.sizes[axis_];
  }
  // In the order in which the first lies.
  View& made = call.at(made_);
  made.set_sizes(out.sizes, out.axes);
  made.lay_out();
  call.take(made_);
  call.work += static_cast<double>(made.count()) * 0.2;
}

void CatStep::run(Call& call) const {
  View to = call.at(made_);
  for (const int value : reads) {
    const View& v = call.at(value);
    to.sizes[axis_] = v.sizes[axis_];
    copy(v, to, call.threads);
    to.data += v.sizes[axis_] * to.strides[axis_] * bytes_of(v.type);
  }
}

CopyTo::CopyTo(int from, int into) : from_(from), into_(into) { reads = {from, into}; }

void CopyTo::resolve(Call& call) const {
  if (!call.at(from_).same_sizes(call.at(into_))) call.fail(from_, "does not fill " + call.at(into_).text());
  call.work += static_cast<double>(call.at(from_).count()) * 0.2;
}

void CopyTo::run(Call& call) const { copy(call.at(from_), call.at(into_), call.threads); }

ArangeStep::ArangeStep(int stop, int made) : stop_(stop), made_(made) { makes = {made}; }

void ArangeStep::resolve(Call& call) const {
  const std::size_t count = call.size(stop_, "stop");
  call.make(made_, &count, 1);
}

void ArangeStep::run(Call& call) const {
  const View& out = call.at(made_);
  for (std::size_t i = 0; i < out.sizes[0]; ++i) out.as<std::int64_t>()[i] = static_cast<std::int64_t>(i);
}

IntegerStep::IntegerStep(int integer, int made) : integer_(integer), made_(made) { makes = {made}; }

void IntegerStep::resolve(Call& call) const { call.make(made_, nullptr, 0); }

void IntegerStep::run(Call& call) const { *call.at(made_).as<std::int64_t>() = call.integer(integer_); }

}  // namespace octavo
