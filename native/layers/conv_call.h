// What both ways of a convolution share.
#pragma once

#include <algorithm>
#include <cstddef>

#include "contract/kernels.h"
#include "contract/row_scale.h"
#include "contract/tables.h"
#include "layers/conv.h"
#include "runtime/parallel.h"

namespace octavo {
namespace {

struct ConvScratch;

// One call, as its threads see it: sizes, and the ranges of the images.
struct ConvCall {
  const KernelTable& t;
  const Conv& layer;
  const ConvShape& s;
  const float* x;
  float* out;
  std::size_t n, h, w, padded_h, padded_w, out_h, out_w, pooled_h, pooled_w, slices;
  ValueRange* ranges = nullptr;  // [images][slices]

  ConvCall(const Conv& conv, const ConvShape& shape, const ConvImages& io, int threads)
      : t(table()), layer(conv), s(shape), x(io.x), out(io.out), n(io.n), h(io.h), w(io.w),
        padded_h(s.padded(0, h)), padded_w(s.padded(1, w)), out_h(s.output(0, h)), out_w(s.output(1, w)),
        pooled_h(s.pooled(0, h)), pooled_w(s.pooled(1, w)),
        slices(static_cast<std::size_t>(threads)) {}

  std::size_t pixels() const { return pooled_h * pooled_w; }
  std::size_t image_size() const { return s.in * h * w; }

  // Images first..first + count: each thread looks at its share of their slices.
  void find_ranges(std::size_t first, std::size_t count, int thread, int threads) const {
    const Share mine = share(count * slices, 1, thread, threads);
    for (std::size_t i = mine.begin; i < mine.end; ++i) {
      const Share part = share(image_size(), 64, static_cast<int>(i % slices), static_cast<int>(slices));
      ranges[i] = t.range(x + (first + i / slices) * image_size() + part.begin, part.end - part.begin);
    }
  }

  // Of the i-th of those images.
  RowScale scale(std::size_t i) const {
    ValueRange all = ranges[i * slices];
    for (std::size_t j = 1; j < slices; ++j) {
      const ValueRange& r = ranges[i * slices + j];
      all = {std::min(all.lo, r.lo), std::max(all.hi, r.hi), all.finite && r.finite};
    }
    return RowScale::from(all);
  }
};

}  // namespace
}  // namespace octavo
