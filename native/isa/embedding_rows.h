// Rows of an embedding table, and sums of them, over any vector type of vector_*.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "contract/kernels.h"

namespace octavo {
namespace {

template <class V>
struct Embeddings {
  using F = typename V::F;
  using I = typename V::I;
  // Rows lie anywhere in memory, so they are asked for before their turn: some, and about as many cache
  // lines as the processor can wait for.
  static constexpr std::size_t kMostAhead = 16, kLinesAhead = 128, kLine = 64;
  static constexpr int kParts = 8;              // vectors of a bag's sum held in registers

  static std::size_t rows_ahead(std::size_t dim) {
    const std::size_t rows = kLinesAhead * kLine / (dim + kLine);
    return rows < 2 ? 2 : rows < kMostAhead ? rows : kMostAhead;
  }

  template <class Index>
  static void prefetch(const EmbeddingTable& t, Index index) {
    const auto r = static_cast<std::size_t>(index);
    const std::uint8_t* row = t.data + r * t.dim;
    __builtin_prefetch(t.scale + r);
    if (t.zero) __builtin_prefetch(t.zero + r);
    for (std::size_t at = 0; at < t.dim; at += kLine) __builtin_prefetch(row + at);
    if (t.dim) __builtin_prefetch(row + t.dim - 1);
  }

  // What a row needs beside its integers.
  struct Row {
    I zero;
    F scale;
    Row(const EmbeddingTable& t, std::size_t r)
        : zero(V::set_i(t.zero ? t.zero[r] : 0)), scale(V::set(t.scale[r])) {}
    F steps(I q) const { return V::to_float(V::sub_i(q, zero)); }
  };

  template <class Q, class Index>
  static void lookup_as(const EmbeddingLookup& e) {
    constexpr std::size_t w = V::kWidth;
    const auto* indices = static_cast<const Index*>(e.indices);
    const std::size_t ahead = rows_ahead(e.table.dim);
    for (std::size_t i = e.begin; i < e.end; ++i) {
      if (i + ahead < e.end) prefetch(e.table, indices[i + ahead]);
      const auto r = static_cast<std::size_t>(indices[i]);
      const Row row(e.table, r);
      const Q* q = reinterpret_cast<const Q*>(e.table.data) + r * e.table.dim;
      float* out = e.out + i * e.out_stride;
      std::size_t d = 0;
      for (; d + w <= e.table.dim; d += w) V::store(out + d, V::mul(row.steps(V::load_q(q + d)), row.scale));
      if (d < e.table.dim) {
        const int rest = static_cast<int>(e.table.dim - d);
        V::store_n(out + d, V::mul(row.steps(V::load_q_n(q + d, rest)), row.scale), rest);
      }
    }
  }

  // Columns from `column` on of one bag: P whole vectors, or (P = 0) the last `rest` columns.
  template <class Q, class Index, BagMode mode, int P>
  static void columns(const EmbeddingBag& e, std::size_t begin, std::size_t end, std::size_t column, int rest,
                      float* out) {
    constexpr int kSums = P ? P : 1;
    const auto* indices = static_cast<const Index*>(e.indices);
    const Q* data = reinterpret_cast<const Q*>(e.table.data) + column;
    F sum[kSums];
    for (int p = 0; p < kSums; ++p) sum[p] = V::set(0.0f);
    std::size_t count = 0;
    const std::size_t ahead = rows_ahead(e.table.dim);
    for (std::size_t i = begin; i < end; ++i) {
      if (column == 0 && i + ahead < e.count) prefetch(e.table, indices[i + ahead]);
      if (static_cast<std::int64_t>(indices[i]) == e.padding) continue;
      const auto r = static_cast<std::size_t>(indices[i]);
      const Row row(e.table, r);
      const F scale = e.weights ? V::mul(row.scale, V::set(e.weights[i])) : row.scale;
      const Q* q = data + r * e.table.dim;
      for (int p = 0; p < kSums; ++p) {
        const F steps = row.steps(P ? V::load_q(q + p * V::kWidth) : V::load_q_n(q, rest));
        if (mode != BagMode::kMax) sum[p] = V::fma(steps, scale, sum[p]);
        else sum[p] = count ? V::max(V::mul(steps, scale), sum[p]) : V::mul(steps, scale);
      }
      ++count;
    }
    for (int p = 0; p < kSums; ++p) {
      if (mode == BagMode::kMean && count) sum[p] = V::div(sum[p], V::set(static_cast<float>(count)));
      if (P) V::store(out + column + static_cast<std::size_t>(p * V::kWidth), sum[p]);
      else V::store_n(out + column, sum[p], rest);
    }
  }

  template <class Q, class Index, BagMode mode>
  static void bag_as(const EmbeddingBag& e) {
    constexpr std::size_t w = V::kWidth;
    const std::size_t dim = e.table.dim;
    for (std::size_t b = e.begin; b < e.end; ++b) {
      const std::size_t first = e.starts[b], last = e.starts[b + 1];
      float* out = e.out + b * e.out_stride;
      std::size_t d = 0;
      for (; d + kParts * w <= dim; d += kParts * w) columns<Q, Index, mode, kParts>(e, first, last, d, 0, out);
      for (; d + 4 * w <= dim; d += 4 * w) columns<Q, Index, mode, 4>(e, first, last, d, 0, out);
      for (; d + 2 * w <= dim; d += 2 * w) columns<Q, Index, mode, 2>(e, first, last, d, 0, out);
      for (; d + w <= dim; d += w) columns<Q, Index, mode, 1>(e, first, last, d, 0, out);
      if (d < dim) columns<Q, Index, mode, 0>(e, first, last, d, static_cast<int>(dim - d), out);
    }
  }

  template <class Q, class Index>
  static void bag_of(const EmbeddingBag& e) {
    switch (e.mode) {
      case BagMode::kSum: return bag_as<Q, Index, BagMode::kSum>(e);
      case BagMode::kMean: return bag_as<Q, Index, BagMode::kMean>(e);
      case BagMode::kMax: return bag_as<Q, Index, BagMode::kMax>(e);
    }
  }

  static void lookup(const EmbeddingLookup& e) {
    if (e.wide) e.table.is_signed ? lookup_as<std::int8_t, std::int64_t>(e) : lookup_as<std::uint8_t, std::int64_t>(e);
    else e.table.is_signed ? lookup_as<std::int8_t, std::int32_t>(e) : lookup_as<std::uint8_t, std::int32_t>(e);
  }

  static void bag(const EmbeddingBag& e) {
    if (e.wide) e.table.is_signed ? bag_of<std::int8_t, std::int64_t>(e) : bag_of<std::uint8_t, std::int64_t>(e);
    else e.table.is_signed ? bag_of<std::int8_t, std::int32_t>(e) : bag_of<std::uint8_t, std::int32_t>(e);
  }
};

}  // namespace
}  // namespace octavo
