#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "layers/copy.h"
#include "layers/gathered_product.h"
#include "layers/program_rows.h"

namespace octavo {
namespace {

// An index as Python has it: negative ones count from the end.
std::size_t place_of(std::int64_t index, std::size_t size) {
  const auto count = static_cast<std::int64_t>(size);
  if (index < -count || index >= count)
    throw std::invalid_argument("index " + std::to_string(index) + " is outside of " + std::to_string(size) + " elements");
  return static_cast<std::size_t>(index < 0 ? index + count : index);
}

template <class T>
void gather_elements(const View& x, const View& index, std::size_t axis, const View& out) {
  std::size_t at[kMostAxes] = {};
  for (std::size_t n = out.count(), i = 0; i < n; ++i) {
    std::size_t rest = i, from = 0, which = 0;
    for (std::size_t a = out.axes; a-- > 0;) {
      at[a] = rest % out.sizes[a];
      rest /= out.sizes[a];
      which += at[a] * index.strides[a];
      if (a != axis) from += at[a] * x.strides[a];
    }
    from += place_of(index.as<std::int64_t>()[which], x.sizes[axis]) * x.strides[axis];
    out.as<T>()[i] = x.as<T>()[from];
  }
}

}  // namespace

TakeStep::TakeStep(int x, std::size_t axis, int index, int made, int into) : x_(x), axis_(axis), index_(index), made_(made), into_(into) {
  reads = {x, index};
  if (into >= 0) reads.push_back(into);
  else makes = {made};
}

void TakeStep::resolve(Call& call) const {
  const View &x = call.at(x_), &index = call.at(index_);
  call.expect_type(index_, ValueType::kInt64, "an index");
  if (index.axes != 1) call.fail(index_, "an index needs one axis");
  call.work += static_cast<double>(x.count()) * 0.2;
  if (into_ >= 0) {
    View part = call.at(into_);
    part.sizes[axis_] = index.sizes[0];
    if (!x.same_sizes(part)) call.fail(x_, "does not fill " + std::to_string(index.sizes[0]) + " places of " + call.at(into_).text());
    return;
  }
  View out = x;
  out.sizes[axis_] = index.sizes[0];
  call.make(made_, out.sizes, out.axes);
}

void TakeStep::run(Call& call) const {
  const View& index = call.at(index_);
  const bool writes = into_ >= 0;
  const View &outer = call.at(writes ? into_ : x_), &inner = call.at(writes ? x_ : made_);
  const std::size_t bytes = bytes_of(outer.type);
  View a = outer, b = inner;
  a.sizes[axis_] = b.sizes[axis_] = 1;
  for (std::size_t i = 0; i < index.sizes[0]; ++i) {
    const std::size_t place = place_of(index.as<std::int64_t>()[i * index.strides[0]], outer.sizes[axis_]);
    a.data = outer.data + place * outer.strides[axis_] * bytes;
    b.data = inner.data + i * inner.strides[axis_] * bytes;
    writes ? copy(b, a, call.threads) : copy(a, b, call.threads);
  }
}

GatherStep::GatherStep(int x, std::size_t axis, int index, int made) : x_(x), axis_(axis), index_(index), made_(made) {
  reads = {x, index};
  makes = {made};
}

void GatherStep::resolve(Call& call) const {
  const View &x = call.at(x_), &index = call.at(index_);
  call.expect_type(index_, ValueType::kInt64, "an index");
  for (std::size_t i = 0; i < x.axes; ++i)
    if (index.axes != x.axes || (i != axis_ && index.sizes[i] > x.sizes[i])) call.fail(index_, "does not index " + x.text());
  call.make(made_, index.sizes, index.axes);
  call.work += static_cast<double>(index.count()) * 5.0;
}

void GatherStep::run(Call& call) const {
  const View &x = call.at(x_), &index = call.at(index_), &out = call.at(made_);
  switch (bytes_of(x.type)) {
    case 1: return gather_elements<std::uint8_t>(x, index, axis_, out);
    case 4: return gather_elements<std::uint32_t>(x, index, axis_, out);
    default: return gather_elements<std::uint64_t>(x, index, axis_, out);
  }
}

GatheredProductStep::GatheredProductStep(int a, int table, int index, bool transposed, int made)
    : a_(a), table_(table), index_(index), transposed_(transposed), made_(made) {
  reads = {a, table, index};
  makes = {made};
}

void GatheredProductStep::resolve(Call& call) const {
  const View &a = call.at(a_), &table = call.at(table_), &index = call.at(index_);
  call.expect_type(a_, ValueType::kFloat32, "a gathered product");
  call.expect_type(table_, ValueType::kFloat32, "a gathered product");
  call.expect_type(index_, ValueType::kInt64, "an index");
  if (a.axes < 3 || a.axes > 4) call.fail(a_, "a gathered product needs three or four axes");
  if (table.axes != a.axes || table.last() != a.last()) call.fail(table_, "does not multiply " + a.text());
  View out = a;
  out.sizes[out.axes - 1] = index.last();
  bool fits = index.axes == a.axes && index.sizes[index.axes - 2] == a.sizes[a.axes - 2];
  for (std::size_t i = 0; i + 2 < a.axes; ++i)
    fits = fits && (index.sizes[i] == 1 || index.sizes[i] == a.sizes[i]) && (table.sizes[i] == 1 || table.sizes[i] == a.sizes[i]);
  if (!fits) call.fail(index_, "does not index products of " + a.text() + " and " + table.text());
  if (transposed_) std::swap(out.sizes[out.axes - 2], out.sizes[out.axes - 1]);
  call.make(made_, out.sizes, out.axes);
  call.work += static_cast<double>(a.count(0)) * static_cast<double>(std::min(table.sizes[table.axes - 2], 2 * index.last())) * 0.025;
}

void GatheredProductStep::run(Call& call) const {
  const View &a = call.at(a_), &table = call.at(table_), &index = call.at(index_);
  gathered_product(a, table, index, span_of(index, table.sizes[table.axes - 2]), transposed_, call.at(made_), call.threads);
}

EmbeddingStep::EmbeddingStep(int table, int index, int made) : table_(table), index_(index), made_(made) {
  reads = {table, index};
  makes = {made};
}

void EmbeddingStep::resolve(Call& call) const {
  const View &table = call.at(table_), &index = call.at(index_);
  call.expect_type(index_, ValueType::kInt64, "an index");
  if (table.axes != 2 || !table.side_by_side()) call.fail(table_, "a table needs two axes, the rows without gaps");
  if (index.axes == kMostAxes) call.fail(index_, "an index needs fewer axes");
  View out = index;
  out.sizes[out.axes++] = table.sizes[1];
  call.make(made_, out.sizes, out.axes);
  call.work += static_cast<double>(out.count()) * 0.2;
}

void EmbeddingStep::run(Call& call) const {
  const View &table = call.at(table_), &index = call.at(index_), &out = call.at(made_);
  const std::size_t width = table.sizes[1] * bytes_of(table.type), stride = table.strides[0] * bytes_of(table.type);
  const Loops over(index.sizes, index.axes, {&index});
  std::uint8_t* to = out.data;
  for (std::size_t row = 0; row < over.rows(); ++row)
    for (std::size_t i = 0; i < over.inner(); ++i, to += width) {
      const std::int64_t which = index.as<std::int64_t>()[over.at(0, row) + i * over.step(0)];
      std::memcpy(to, table.data + place_of(which, table.sizes[0]) * stride, width);
    }
}

}  // namespace octavo
