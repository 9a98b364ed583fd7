#include "ort_ops/embedding_op.h"

#include <algorithm>

namespace octavo::ort {
namespace {

constexpr std::int64_t kMost = INT64_C(1) << 40;  // elements of a table: sizes stay far from overflowing

Shape row_of(const Node& node, std::size_t dim) {
  const std::vector<std::int64_t> dims = node.integers("shape", {static_cast<std::int64_t>(dim)});
  Shape row;
  std::int64_t all = 1;
  bool good = dims.size() < Shape::kMost;
  for (std::size_t i = 0; good && i < dims.size(); ++i) {
    good = dims[i] >= 1 && dims[i] <= kMost / all;
    all *= good ? dims[i] : 1;
    row.dims[row.rank++] = dims[i];
  }
  if (!good || all != static_cast<std::int64_t>(dim))
    node.fail("the attribute shape is " + row.text() + "; its product has to be D, " + std::to_string(dim));
  return row;
}

// The indices with negative ones counted from the end. Those that no row has stay as they are: the lookup
// names them.
template <class Index>
const Index* from_the_end(Call& call, const Index* indices, std::size_t count, std::size_t rows) {
  const bool any = std::any_of(indices, indices + count, [](Index i) { return i < 0; });
  if (!any) return indices;
  auto* turned = reinterpret_cast<Index*>(call.memory(count * sizeof(Index)));
  const auto all = static_cast<std::int64_t>(rows);
  std::transform(indices, indices + count, turned, [all](Index i) {
    return i < 0 && i >= -all ? static_cast<Index>(i + all) : i;
  });
  return turned;
}

}  // namespace

EmbeddingOp::EmbeddingOp(const Node& node) : rows_(node.size("V")), packed_(node.integer("packed", 0) != 0) {
  const std::size_t dim = node.size("D");
  if (dim > static_cast<std::size_t>(kMost) / rows_)
    node.fail("a table of " + std::to_string(rows_) + " rows of " + std::to_string(dim) + " is too large");
  row_ = row_of(node, dim);
  const auto rows = static_cast<std::int64_t>(rows_), columns = static_cast<std::int64_t>(dim);
  const std::int64_t checksum = node.integer("checksum");
  const PackedData found = packed_ ? node.packed_matrix(1, "W", rows_, dim, checksum, copy_)
                                   : node.packed(1, "W", Shape{rows, columns}, checksum, copy_);
  format_ = found.format;
  const float* scale = node.scales(2, "W_scale", {rows});
  const std::int8_t* zero = node.constant<std::int8_t>(3, "W_zero_point", {rows}).data;
  if (std::any_of(zero, zero + rows_, [](std::int8_t z) { return z != 0; })) zeros_.assign(zero, zero + rows_);
  if (format_.group && !zeros_.empty()) node.fail("W_zero_point holds other numbers than 0; tables in groups have theirs in W");
  table_ = {reinterpret_cast<const std::uint8_t*>(found.data), true, dim, scale, zeros_.empty() ? nullptr : zeros_.data()};
}

void EmbeddingOp::run(Call& call) const {
  const AnyTensor given = call.any_input(0, "indices");
  const bool wide = given.type == ElementType::kInt64;
  if (!wide && given.type != ElementType::kInt32)
    throw Error(std::string("indices is ") + name_of(given.type) + "; it has to be int32 or int64");
  if (given.shape.rank + row_.rank > Shape::kMost)
    throw Error("indices has shape " + given.shape.text() + "; the output would have more than " +
                std::to_string(Shape::kMost) + " dimensions");
  const std::size_t count = given.shape.elements();
  const void* places = wide ? static_cast<const void*>(from_the_end(call, static_cast<const std::int64_t*>(given.data), count, rows_))
                            : from_the_end(call, static_cast<const std::int32_t*>(given.data), count, rows_);
  Shape shape = given.shape;
  for (std::size_t i = 0; i < row_.rank; ++i) shape[shape.rank++] = row_[i];
  float* to = call.output(0, shape);
  const Indices indices{places, wide, count};
  if (packed_) packed_lookup(table_, rows_, indices, to, call.threads(), format_);
  else embedding_lookup(table_, rows_, indices, to, table_.dim, call.threads());
}

void EmbeddingOp::infer(const Inference& inference) {
  Inference::Dims y = inference.input(0);
  if (y.empty()) return;
  std::vector<std::int64_t> row = inference.integers("shape");
  if (row.empty()) row.push_back(inference.integer("D", -1));
  for (std::int64_t d : row) {
    if (d < 1) return;
    y.push_back(Inference::known(d));
  }
  inference.output(0, y);
}

}  // namespace octavo::ort
