#include "layers/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "contract/tables.h"
#include "runtime/arena.h"
#include "runtime/parallel.h"

namespace octavo {
namespace {

constexpr std::size_t kStage = 512;  // elements with gaps that are gathered at a time

// Calls row(first element's offset in each view, n) for the rows of `out`, shared by threads where they take long
// enough: `nanoseconds` an element. One long row is shared too.
template <class Row>
void for_rows(const Loops& over, double nanoseconds, int threads, const Row& row) {
  const std::size_t rows = over.rows(), inner = over.inner();
  if (rows == 0 || inner == 0) return;
  threads = earned_threads(threads, static_cast<double>(rows * inner) * nanoseconds * 1e-3);
  auto part = [&](int, int thread, int all) {
    const FloatMode mode;
    if (rows == 1) {
      const Share mine = share(inner, 64, thread, all);
      return row(0, mine.begin, mine.end - mine.begin);
    }
    const Share mine = share(rows, 1, thread, all);
    for (std::size_t r = mine.begin; r < mine.end; ++r) row(r, 0, inner);
  };
  parallel(threads, 1, part);
}

// f(out element, input elements...) for every element, by plain loops.
template <class Out, class A, class F>
void map(const View& a, const View& out, double nanoseconds, int threads, const F& f) {
  const Loops over(out.sizes, out.axes, {&out, &a});
  for_rows(over, nanoseconds, threads, [&](std::size_t row, std::size_t first, std::size_t n) {
    Out* to = out.as<Out>() + over.at(0, row) + first * over.step(0);
    const A* x = a.as<A>() + over.at(1, row) + first * over.step(1);
    for (std::size_t i = 0; i < n; ++i) to[i * over.step(0)] = f(x[i * over.step(1)]);
  });
}

template <class Out, class A, class F>
void map(const View& a, const View& b, const View& out, int threads, const F& f) {
  const Loops over(out.sizes, out.axes, {&out, &a, &b});
  for_rows(over, 1.0, threads, [&](std::size_t row, std::size_t first, std::size_t n) {
    Out* to = out.as<Out>() + over.at(0, row) + first * over.step(0);
    const A* x = a.as<A>() + over.at(1, row) + first * over.step(1);
    const A* y = b.as<A>() + over.at(2, row) + first * over.step(2);
    for (std::size_t i = 0; i < n; ++i) to[i * over.step(0)] = f(x[i * over.step(1)], y[i * over.step(2)]);
  });
}

template <class A>
void compare_of(Compare op, const View& a, const View& b, const View& out, int threads) {
  using B = std::uint8_t;
  switch (op) {
    case Compare::kGt: return map<B, A>(a, b, out, threads, [](A x, A y) { return x > y; });
    case Compare::kGe: return map<B, A>(a, b, out, threads, [](A x, A y) { return x >= y; });
    case Compare::kLt: return map<B, A>(a, b, out, threads, [](A x, A y) { return x < y; });
    case Compare::kLe: return map<B, A>(a, b, out, threads, [](A x, A y) { return x <= y; });
    case Compare::kEq: return map<B, A>(a, b, out, threads, [](A x, A y) { return x == y; });
    case Compare::kNe: return map<B, A>(a, b, out, threads, [](A x, A y) { return x != y; });
  }
}

template <class T>
void where_of(const View& condition, const View& a, const View& b, const View& out, int threads) {
  const Loops over(out.sizes, out.axes, {&out, &condition, &a, &b});
  for_rows(over, 1.0, threads, [&](std::size_t row, std::size_t first, std::size_t n) {
    T* to = out.as<T>() + over.at(0, row) + first * over.step(0);
    const auto* c = condition.as<std::uint8_t>() + over.at(1, row) + first * over.step(1);
    const T* x = a.as<T>() + over.at(2, row) + first * over.step(2);
    const T* y = b.as<T>() + over.at(3, row) + first * over.step(3);
    for (std::size_t i = 0; i < n; ++i) to[i * over.step(0)] = c[i * over.step(1)] ? x[i * over.step(2)] : y[i * over.step(3)];
  });
}

template <class Out>
void convert_to(const View& x, const View& out, int threads) {
  switch (x.type) {
    case ValueType::kFloat32: return map<Out, float>(x, out, 1.0, threads, [](float v) { return static_cast<Out>(v); });
    case ValueType::kBool: return map<Out, std::uint8_t>(x, out, 1.0, threads, [](std::uint8_t v) { return static_cast<Out>(v != 0); });
    case ValueType::kInt64: return map<Out, std::int64_t>(x, out, 1.0, threads, [](std::int64_t v) { return static_cast<Out>(v); });
  }
}

void convert_to_bool(const View& x, const View& out, int threads) {
  using B = std::uint8_t;
  switch (x.type) {
    case ValueType::kFloat32: return map<B, float>(x, out, 1.0, threads, [](float v) { return v != 0.0f; });
    case ValueType::kBool: return map<B, B>(x, out, 1.0, threads, [](B v) { return v != 0; });
    case ValueType::kInt64: return map<B, std::int64_t>(x, out, 1.0, threads, [](std::int64_t v) { return v != 0; });
  }
}

// Elements with gaps, side by side.
void gather(const float* x, std::size_t step, std::size_t n, float* to) {
  for (std::size_t i = 0; i < n; ++i) to[i] = x[i * step];
}
void scatter(const float* from, std::size_t n, float* to, std::size_t step) {
  for (std::size_t i = 0; i < n; ++i) to[i * step] = from[i];
}

}  // namespace

void unary(Unary op, const View& x, const View& out, int threads) {
  const KernelTable& t = table();
  const Loops over(out.sizes, out.axes, {&out, &x});
  for_rows(over, 1.0, threads, [&](std::size_t row, std::size_t first, std::size_t n) {
    float* to = out.as<float>() + over.at(0, row) + first * over.step(0);
    const float* from = x.as<float>() + over.at(1, row) + first * over.step(1);
    if (over.step(0) == 1 && over.step(1) == 1) return t.unary(op, from, to, n);
    float stage[kStage];
    for (std::size_t i = 0; i < n; i += kStage) {
      const std::size_t some = std::min(kStage, n - i);
      gather(from + i * over.step(1), over.step(1), some, stage);
      t.unary(op, stage, stage, some);
      scatter(stage, some, to + i * over.step(0), over.step(0));
    }
  });
}

void binary(Binary op, const View& a, const View& b, const View& out, int threads) {
  const KernelTable& t = table();
  const Loops over(out.sizes, out.axes, {&out, &a, &b});
  const std::size_t steps[] = {over.step(0), over.step(1), over.step(2)};
  for_rows(over, 0.3, threads, [&](std::size_t row, std::size_t first, std::size_t n) {
    float* to = out.as<float>() + over.at(0, row) + first * steps[0];
    const float* x = a.as<float>() + over.at(1, row) + first * steps[1];
    const float* y = b.as<float>() + over.at(2, row) + first * steps[2];
    if (steps[0] == 1 && steps[1] <= 1 && steps[2] <= 1) return t.binary({op, x, steps[1], y, steps[2], n, to});
    float stage_a[kStage], stage_b[kStage];
    for (std::size_t i = 0; i < n; i += kStage) {
      const std::size_t some = std::min(kStage, n - i);
      gather(x + i * steps[1], steps[1], some, stage_a);
      gather(y + i * steps[2], steps[2], some, stage_b);
      t.binary({op, stage_a, 1, stage_b, 1, some, stage_a});
      scatter(stage_a, some, to + i * steps[0], steps[0]);
    }
  });
}

void slow(Slow op, const View& x, const View& out, int threads) {
  constexpr double kEach = 20.0;  // nanoseconds
  switch (op) {
    case Slow::kSin: return map<float, float>(x, out, kEach, threads, [](double v) { return static_cast<float>(std::sin(v)); });
    case Slow::kCos: return map<float, float>(x, out, kEach, threads, [](double v) { return static_cast<float>(std::cos(v)); });
    case Slow::kLog: return map<float, float>(x, out, kEach, threads, [](double v) { return static_cast<float>(std::log(v)); });
    case Slow::kSoftplus:
      return map<float, float>(x, out, kEach, threads, [](double v) { return static_cast<float>(v > 20.0 ? v : std::log1p(std::exp(v))); });
  }
}

void power(const View& x, float exponent, const View& out, int threads) {
  if (exponent == 2.0f) return binary(Binary::kMul, x, x, out, threads);
  if (exponent == 0.5f) return unary(Unary::kSqrt, x, out, threads);
  if (exponent == -0.5f) return unary(Unary::kRsqrt, x, out, threads);
  if (exponent == -1.0f) return unary(Unary::kReciprocal, x, out, threads);
  const double by = exponent;
  map<float, float>(x, out, 40.0, threads, [by](double v) { return static_cast<float>(std::pow(v, by)); });
}

void compare(Compare op, const View& a, const View& b, const View& out, int threads) {
  switch (a.type) {
    case ValueType::kFloat32: return compare_of<float>(op, a, b, out, threads);
    case ValueType::kBool: return compare_of<std::uint8_t>(op, a, b, out, threads);
    case ValueType::kInt64: return compare_of<std::int64_t>(op, a, b, out, threads);
  }
}

void logic(Logic op, const View& a, const View& b, const View& out, int threads) {
  using B = std::uint8_t;
  if (op == Logic::kAnd) map<B, B>(a, b, out, threads, [](B x, B y) { return x && y; });
  else map<B, B>(a, b, out, threads, [](B x, B y) { return x || y; });
}

void logical_not(const View& x, const View& out, int threads) {
  map<std::uint8_t, std::uint8_t>(x, out, 1.0, threads, [](std::uint8_t v) { return v == 0; });
}

void integers(Integer op, const View& a, const View& b, const View& out, int threads) {
  using I = std::int64_t;
  using U = std::uint64_t;
  const auto wrapped = [](auto f) { return [f](I x, I y) { return static_cast<I>(f(static_cast<U>(x), static_cast<U>(y))); }; };
  switch (op) {
    case Integer::kAdd: return map<I, I>(a, b, out, threads, wrapped([](U x, U y) { return x + y; }));
    case Integer::kSub: return map<I, I>(a, b, out, threads, wrapped([](U x, U y) { return x - y; }));
    case Integer::kMul: return map<I, I>(a, b, out, threads, wrapped([](U x, U y) { return x * y; }));
    case Integer::kDiv:
      return map<I, I>(a, b, out, threads, [](I x, I y) {
        if (y == 0) return I{0};
        if (y == -1) return static_cast<I>(0 - static_cast<U>(x));
        return x / y - (x % y != 0 && (x < 0) != (y < 0));
      });
    case Integer::kMin: return map<I, I>(a, b, out, threads, [](I x, I y) { return std::min(x, y); });
    case Integer::kMax: return map<I, I>(a, b, out, threads, [](I x, I y) { return std::max(x, y); });
  }
}

void where(const View& condition, const View& a, const View& b, const View& out, int threads) {
  switch (out.type) {
    case ValueType::kFloat32: return where_of<float>(condition, a, b, out, threads);
    case ValueType::kBool: return where_of<std::uint8_t>(condition, a, b, out, threads);
    case ValueType::kInt64: return where_of<std::int64_t>(condition, a, b, out, threads);
  }
}

void convert(const View& x, const View& out, int threads) {
  switch (out.type) {
    case ValueType::kFloat32: return convert_to<float>(x, out, threads);
    case ValueType::kBool: return convert_to_bool(x, out, threads);
    case ValueType::kInt64: return convert_to<std::int64_t>(x, out, threads);
  }
}

}  // namespace octavo
