#include "layers/program_elements.h"

#include <algorithm>
#include <string>

namespace octavo {
namespace {

// Sizes that all inputs broadcast to.
std::size_t broadcast(Call& call, const std::vector<int>& inputs, std::size_t (&sizes)[kMostAxes]) {
  std::size_t axes = 0;
  for (const int input : inputs) axes = std::max(axes, call.at(input).axes);
  std::fill(sizes, sizes + kMostAxes, 1);
  for (const int input : inputs) {
    const View& v = call.at(input);
    for (std::size_t i = 0; i < v.axes; ++i) {
      std::size_t& size = sizes[axes - v.axes + i];
      if (v.sizes[i] == 1) continue;
      if (size != 1 && size != v.sizes[i]) call.fail(input, "does not broadcast with " + call.at(inputs[0]).text());
      size = v.sizes[i];
    }
  }
  return axes;
}

template <class F>
std::unique_ptr<Step> of_one(const char* name, int x, int made, double nanoseconds, F f) {
  auto compute = [f](const View* const* in, const View& out, int threads) { f(*in[0], out, threads); };
  return std::make_unique<ElementStep>(name, std::vector<int>{x}, made, compute, nanoseconds);
}

template <class F>
std::unique_ptr<Step> of_two(const char* name, int a, int b, int made, double nanoseconds, F f) {
  auto compute = [f](const View* const* in, const View& out, int threads) { f(*in[0], *in[1], out, threads); };
  return std::make_unique<ElementStep>(name, std::vector<int>{a, b}, made, compute, nanoseconds);
}

}  // namespace

ElementStep::ElementStep(const char* name, std::vector<int> inputs, int made, Compute compute, double nanoseconds)
    : name_(name), made_(made), compute_(std::move(compute)), nanoseconds_(nanoseconds) {
  reads = std::move(inputs);
  makes = {made};
}

void ElementStep::resolve(Call& call) const {
  std::size_t sizes[kMostAxes];
  const std::size_t axes = broadcast(call, reads, sizes);
  View& out = call.at(made_);
  out.set_sizes(sizes, axes);
  out.lay_out();
  // Inputs that lie in another order of axes have results that lie so too.
  for (const int input : reads) {
    const View& v = call.at(input);
    if (!v.same_sizes(out)) continue;
    if (v.dense()) out.lay_out_as(v);
    break;
  }
  call.take(made_);
  call.work += static_cast<double>(out.count()) * nanoseconds_;
}

void ElementStep::run(Call& call) const {
  const View* inputs[3] = {};
  for (std::size_t i = 0; i < reads.size(); ++i) inputs[i] = &call.at(reads[i]);
  if (call.at(made_).count()) compute_(inputs, call.at(made_), call.threads);
}

std::unique_ptr<Step> unary_step(Unary op, int x, int made) {
  return of_one("unary", x, made, 1.0, [op](const View& v, const View& out, int threads) { unary(op, v, out, threads); });
}

std::unique_ptr<Step> slow_step(Slow op, int x, int made) {
  return of_one("unary", x, made, 20.0, [op](const View& v, const View& out, int threads) { slow(op, v, out, threads); });
}

std::unique_ptr<Step> power_step(int x, float exponent, int made) {
  return of_one("power", x, made, 10.0, [exponent](const View& v, const View& out, int threads) { power(v, exponent, out, threads); });
}

std::unique_ptr<Step> not_step(int x, int made) { return of_one("unary", x, made, 1.0, logical_not); }

std::unique_ptr<Step> convert_step(int x, int made) { return of_one("cast", x, made, 1.0, convert); }

std::unique_ptr<Step> binary_step(Binary op, int a, int b, int made) {
  return of_two("binary", a, b, made, 0.3, [op](const View& x, const View& y, const View& out, int threads) { binary(op, x, y, out, threads); });
}

std::unique_ptr<Step> compare_step(Compare op, int a, int b, int made) {
  return of_two("binary", a, b, made, 1.0, [op](const View& x, const View& y, const View& out, int threads) { compare(op, x, y, out, threads); });
}

std::unique_ptr<Step> logic_step(Logic op, int a, int b, int made) {
  return of_two("binary", a, b, made, 1.0, [op](const View& x, const View& y, const View& out, int threads) { logic(op, x, y, out, threads); });
}

std::unique_ptr<Step> integer_step(Integer op, int a, int b, int made) {
  return of_two("binary", a, b, made, 1.0, [op](const View& x, const View& y, const View& out, int threads) { integers(op, x, y, out, threads); });
}

std::unique_ptr<Step> where_step(int condition, int a, int b, int made) {
  auto compute = [](const View* const* in, const View& out, int threads) { where(*in[0], *in[1], *in[2], out, threads); };
  return std::make_unique<ElementStep>("where", std::vector<int>{condition, a, b}, made, compute, 1.0);
}

}  // namespace octavo
