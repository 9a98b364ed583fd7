// One step of recurrent layers after its products: gates in, states out, over any vector type of
// vector_*.h. Gates lie in blocks of 16 units (kernels.h). A cell has two divisions: its fractions are put
// on common denominators.
#pragma once

#include <cstddef>
#include <type_traits>

#include "contract/kernels.h"

namespace octavo {
namespace {

template <class V>
struct Cells {
  using F = typename V::F;
  using I = typename V::I;
  static constexpr std::size_t kWidth = static_cast<std::size_t>(V::kWidth);

  // Beyond 2^40 and below 2^-40 sigmoid and tanh are 0 and 1 to 1e-12, and products of three powers stay
  // finite.
  static constexpr float kMost = 40.0f;

  // The exponent factor x, bounded; a factor of 1 is none. NaN stays NaN: minps and maxps return their second
  // operand where one is.
  static F exponent(F x, float factor) {
    const float most = kMost / __builtin_fabsf(factor);
    const F t = V::max(V::set(-most), V::min(V::set(most), x));
    return factor == 1.0f ? t : V::mul(t, V::set(factor));
  }

  // 2^t of N exponents, and the same less one, for -kMost <= t <= kMost. Operation by operation for all of them: of N
  // chains one after the other a processor sees too few at a time (measured once, while developing: 7% of an LSTM's
  // cells, four in step).
  template <int N>
  struct Powers {
    F n[N], r[N], p[N];  // t = n + r; 2^r = 1 + p r
    explicit Powers(const F (&t)[N]) {
      for (int i = 0; i < N; ++i) n[i] = V::nearest(t[i]);
      for (int i = 0; i < N; ++i) r[i] = V::sub(t[i], n[i]);
      // Least largest relative error of (2^r - 1) / r over |r| <= 1/2: 4.3e-7.
      for (int i = 0; i < N; ++i) p[i] = V::fma(V::set(1.3333530e-3f), r[i], V::set(9.6662445e-3f));
      for (int i = 0; i < N; ++i) p[i] = V::fma(p[i], r[i], V::set(5.5505004e-2f));
      for (int i = 0; i < N; ++i) p[i] = V::fma(p[i], r[i], V::set(2.4022351e-1f));
      for (int i = 0; i < N; ++i) p[i] = V::fma(p[i], r[i], V::set(6.9314712e-1f));
    }
    F value(int i) const { return V::scaled(V::fma(p[i], r[i], V::set(1.0f)), n[i]); }
    F less_one(int i) const {  // small x keep their digits
      const F one = V::set(1.0f), two = V::scaled(one, n[i]);
      return V::fma(V::mul(p[i], r[i]), two, V::sub(two, one));
    }
  };

  // sigmoid(x) = 1 / (1 + odds), where odds are two to this. Where products have made exponents of gates (`powers`), a row
  // that is not finite is NaN in all gates, and the tanh, which keeps NaN, makes the state NaN: so a sigmoid is bounded by
  // one operation that does not. It takes the sum of two opposite infinities for the lowest exponent.
  template <bool powers>
  static F odds_exponent(F x) {
    return powers ? V::clipped(x, V::set(kMost)) : exponent(x, kSigmoidPower);
  }
  template <bool powers>
  static F odds(F x) {
    const F t[] = {odds_exponent<powers>(x)};
    return Powers<1>(t).value(0);
  }

  // Factors of a tanh's gate as it comes, or as products have made an exponent of it.
  template <bool powers>
  static constexpr float kTanh = powers ? 1.0f : kTanhPower;

  // docs/notes/processors.md: "Cells take their exponentials in step"
  // tanh(x) = over / under, of N in step.
  template <int N>
  struct Fractions {
    F over[N], under[N];
    explicit Fractions(const F (&x)[N], float factor = kTanhPower) {
      F t[N];
      for (int i = 0; i < N; ++i) t[i] = exponent(x[i], factor);
      const Powers<N> p(t);
      for (int i = 0; i < N; ++i) over[i] = p.less_one(i);
      for (int i = 0; i < N; ++i) under[i] = V::add(over[i], V::set(2.0f));
    }
  };
  struct Fraction {
    F over, under;
    explicit Fraction(F x, float factor = kTanhPower) {
      const F one[] = {x};
      const Fractions<1> f(one, factor);
      over = f.over[0];
      under = f.under[0];
    }
    F value() const { return V::div(over, under); }
  };

  static F one_plus(F x) { return V::add(V::set(1.0f), x); }

  template <bool clipped>
  static F bounded(F x, float clip) {
    if constexpr (clipped) x = V::max(V::set(-clip), V::min(V::set(clip), x));
    return x;
  }

  static float* row_of_y(const CellOutput& o, std::size_t row) { return o.y ? o.y + row * o.y_stride : nullptr; }

  // Prefetches a row of y that a later loop writes: each step has its own, which no cache has (measured once,
  // while developing: 1% of a layer of 512 or 1024 units and 16 items).
  static void prefetch(const float* y, std::size_t u) {
    if (y) __builtin_prefetch(y + u, 1);
  }

  // The state of one row from unit u on: into h, and into the units of y that there are.
  static void store_state(const CellOutput& o, std::size_t row, std::size_t u, F h) {
    V::store(o.h + row * o.h_stride + u, h);
    float* y = row_of_y(o, row);
    if (!y) return;
    if (u + kWidth <= o.y_units) V::store(y + u, h);
    else if (u < o.y_units) V::store_n(y + u, h, static_cast<int>(o.y_units - u));
  }

  // Where the gates of unit u lie, `gates` of them in a block.
  static std::size_t at(std::size_t u, std::size_t gates) { return u / kBlockN * gates * kBlockN + u % kBlockN; }

  // Calls some(2, u) for units from u on, two vectors at a time, and some(1, u) for one that is left.
  template <class Some>
  static void in_twos(std::size_t units, Some some) {
    std::size_t u = 0;
    for (; u + 2 * kWidth <= units; u += 2 * kWidth) some(std::integral_constant<int, 2>{}, u);
    for (; u < units; u += kWidth) some(std::integral_constant<int, 1>{}, u);
  }

  // The chain of operations from gates to a state is longer than a processor looks ahead: a row has a
  // loop for each half of it, with what lies between in the place of the gates.
  template <bool clipped, bool powers>
  static void lstm_cells(const LstmCell& s) {
    for (std::size_t m = 0; m < s.out.rows; ++m) {
      float *gates = s.gates + m * s.gates_stride, *c = s.c + m * s.c_stride;
      const float* y = row_of_y(s.out, m);
      for (std::size_t u = 0; u < s.out.units; u += kWidth) {
        float* g = gates + at(u, 4);
        const auto gate = [&](std::size_t i) { return bounded<clipped>(V::load(g + i * kBlockN), s.clip); };
        const F t[] = {odds_exponent<powers>(gate(0)), odds_exponent<powers>(gate(1)), exponent(gate(2), kTanh<powers>),
                       odds_exponent<powers>(gate(3))};
        const Powers<4> p(t);
        const F i = one_plus(p.value(0)), f = one_plus(p.value(1)), o = one_plus(p.value(3));
        const F over = p.less_one(2), under = V::add(over, V::set(2.0f));  // as Fractions
        // c / f + n / i
        const F in = V::mul(i, under);
        V::store(c + u, V::div(V::fma(V::load(c + u), in, V::mul(over, f)), V::mul(in, f)));
        V::store(g, o);
        prefetch(y, u);
      }
      in_twos(s.out.units, [&](auto n, std::size_t first) {
        constexpr int N = n;
        F x[N];
        for (std::size_t i = 0; i < N; ++i) x[i] = V::load(c + first + i * kWidth);
        const Fractions<N> t(x);  // ONNX Runtime bounds the gates alone
        for (std::size_t i = 0; i < N; ++i) {
          const std::size_t u = first + i * kWidth;
          store_state(s.out, m, u, V::div(t.over[i], V::mul(V::load(gates + at(u, 4)), t.under[i])));
        }
      });
    }
  }

  static void lstm(const LstmCell& s) {
    if (s.powers) return lstm_cells<false, true>(s);
    s.clip > 0.0f ? lstm_cells<true, false>(s) : lstm_cells<false, false>(s);
  }

  // (1 - z) n + z h with z = 1 / (1 + odds) and n = over / under: (odds n + h) / (1 + odds)
  static F mixed(F z_odds, F over, F under, F h) {
    return V::div(V::fma(z_odds, over, V::mul(h, under)), V::mul(one_plus(z_odds), under));
  }

  template <bool clipped, bool powers>
  static void gru_cells(const GruCell& s) {
    for (std::size_t m = 0; m < s.out.rows; ++m) {
      float* gates = s.gates + m * s.gates_stride;
      const float* y = row_of_y(s.out, m);
      const float* x = s.x + m * s.x_stride;
      const auto sum = [&](std::size_t i) { return bounded<clipped>(V::add(V::load(x + i), V::load(gates + i)), s.clip); };
      in_twos(s.out.units, [&](auto n, std::size_t first) {
        constexpr int N = n;
        F t[2 * N];
        for (std::size_t i = 0; i < N; ++i)
          for (std::size_t j = 0; j < 2; ++j) t[2 * i + j] = odds_exponent<powers>(sum(at(first + i * kWidth, 3) + j * kBlockN));
        const Powers<2 * N> p(t);
        for (int i = 0; i < N; ++i) {
          const std::size_t u = first + static_cast<std::size_t>(i) * kWidth, r = at(u, 3), z = r + kBlockN, h = z + kBlockN;
          const F reset = V::div(V::set(1.0f), one_plus(p.value(2 * i))), z_odds = p.value(2 * i + 1);
          V::store(gates + r, V::fma(reset, V::load(gates + h), V::load(x + h)));
          V::store(gates + z, z_odds);
          prefetch(y, u);
        }
      });
      in_twos(s.out.units, [&](auto n, std::size_t first) {
        constexpr int N = n;
        F t[N];
        for (std::size_t i = 0; i < N; ++i) t[i] = bounded<clipped>(V::load(gates + at(first + i * kWidth, 3)), s.clip);
        const Fractions<N> f(t, kTanh<powers>);
        for (std::size_t i = 0; i < N; ++i) {
          const std::size_t u = first + i * kWidth;
          const F z_odds = V::load(gates + at(u, 3) + kBlockN);
          store_state(s.out, m, u, mixed(z_odds, f.over[i], f.under[i], V::load(s.before + m * s.before_stride + u)));
        }
      });
    }
  }

  static void gru(const GruCell& s) {
    if (s.powers) return gru_cells<false, true>(s);
    s.clip > 0.0f ? gru_cells<true, false>(s) : gru_cells<false, false>(s);
  }

  template <bool clipped>
  static void reset_cells(const ResetCell& s) {
    for (std::size_t m = 0; m < s.rows; ++m)
      for (std::size_t u = 0; u < s.units; u += kWidth) {
        const float* x = s.x + m * s.x_stride + at(u, 3);
        const float* g = s.gates + m * s.gates_stride + at(u, 2);
        const auto sum = [&](std::size_t i) {
          return bounded<clipped>(V::add(V::load(x + i * kBlockN), V::load(g + i * kBlockN)), s.clip);
        };
        const F h = V::load(s.before + m * s.before_stride + u);
        V::store(s.reset + m * s.reset_stride + u, V::div(h, one_plus(odds<false>(sum(0)))));
        V::store(s.update + m * s.update_stride + u, odds<false>(sum(1)));
      }
  }

  static void reset(const ResetCell& s) { s.clip > 0.0f ? reset_cells<true>(s) : reset_cells<false>(s); }

  template <bool clipped>
  static void update_cells(const UpdateCell& s) {
    for (std::size_t m = 0; m < s.out.rows; ++m)
      for (std::size_t u = 0; u < s.out.units; u += kWidth) {
        const F x = V::load(s.x + m * s.x_stride + at(u, 3) + 2 * kBlockN);
        const F n = V::add(x, V::load(s.gates + m * s.gates_stride + u));
        const F z = V::load(s.update + m * s.update_stride + u), h = V::load(s.before + m * s.before_stride + u);
        const Fraction t(bounded<clipped>(n, s.clip));
        store_state(s.out, m, u, mixed(z, t.over, t.under, h));
      }
  }

  static void update(const UpdateCell& s) { s.clip > 0.0f ? update_cells<true>(s) : update_cells<false>(s); }

  template <bool clipped>
  static void rnn_cells(const RnnCell& s) {
    for (std::size_t m = 0; m < s.out.rows; ++m)
      for (std::size_t u = 0; u < s.out.units; u += kWidth) {
        const F g = bounded<clipped>(V::load(s.gates + m * s.gates_stride + u), s.clip);
        store_state(s.out, m, u, s.relu ? V::max(V::set(0.0f), g) : Fraction(g).value());
      }
  }

  static void rnn(const RnnCell& s) { s.clip > 0.0f ? rnn_cells<true>(s) : rnn_cells<false>(s); }
};

}  // namespace
}  // namespace octavo
