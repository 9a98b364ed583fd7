#include "ort_ops/broadcast.h"

#include <algorithm>

namespace octavo::ort {

Shape broadcast(const Shape& a, const char* a_name, const Shape& b, const char* b_name) {
  Shape all;
  all.rank = std::max(a.rank, b.rank);
  for (std::size_t i = 0; i < all.rank; ++i) {
    const std::int64_t da = i < a.rank ? a[a.rank - 1 - i] : 1, db = i < b.rank ? b[b.rank - 1 - i] : 1;
    if (da != db && da != 1 && db != 1)
      throw Error(std::string(b_name) + " has shape " + b.text() + ", which does not broadcast with " + a_name + "'s " +
                  a.text());
    all[all.rank - 1 - i] = da == 1 ? db : da;
  }
  return all;
}

Strides strides_in(const Shape& shape, const Shape& all) {
  Strides strides{};
  std::size_t step = 1;
  for (std::size_t i = 0; i < shape.rank; ++i) {
    const std::int64_t d = shape[shape.rank - 1 - i];
    strides[all.rank - 1 - i] = d == 1 ? 0 : step;
    step *= static_cast<std::size_t>(d);
  }
  return strides;
}

bool same_size(const Inference::Dim& a, const Inference::Dim& b) {
  return a.value == b.value && a.symbol == b.symbol && (a.value >= 0 || !a.symbol.empty());
}

Inference::Dims broadcast(const Inference::Dims& a, const Inference::Dims& b) {
  Inference::Dims all(std::max(a.size(), b.size()));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Inference::Dim one = Inference::known(1);
    const Inference::Dim da = i < a.size() ? a[a.size() - 1 - i] : one, db = i < b.size() ? b[b.size() - 1 - i] : one;
    Inference::Dim& to = all[all.size() - 1 - i];
    if (same_size(da, db) || db.value == 1) to = da;
    else if (da.value == 1) to = db;
    else if (da.value > 1) to = da;
    else if (db.value > 1) to = db;
  }
  return all;
}

}  // namespace octavo::ort
