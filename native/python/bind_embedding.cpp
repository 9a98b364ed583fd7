#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <string>
#include <type_traits>

#include "layers/embedding.h"
#include "layers/pack.h"
#include "python/bind.h"
#include "runtime/parallel.h"

namespace octavo {

using namespace nb::literals;

namespace {

// Bytes read and written from which a call gives up Python's lock: about 20 us.
constexpr double kLong = 256e3;

// A table with the arrays that it refers to: any objects with a buffer, mapped files included.
template <class Q>
struct BoundEmbedding {
  Array<const Q, 2> q;
  Array<const float, 1> scale;
  std::optional<Array<const std::int32_t, 1>> zero;

  BoundEmbedding(Array<const Q, 2> table, Array<const float, 1> scales,
                 std::optional<Array<const std::int32_t, 1>> zeros)
      : q(std::move(table)), scale(std::move(scales)), zero(std::move(zeros)) {
    expect(scale.shape(0) == q.shape(0) && (!zero || zero->shape(0) == q.shape(0)),
           "Embedding: scale and zero need one element a row");
  }

  EmbeddingTable table() const {
    return {reinterpret_cast<const std::uint8_t*>(q.data()), std::is_signed_v<Q>, q.shape(1), scale.data(),
            zero ? zero->data() : nullptr};
  }

  bool release(std::size_t rows) const {
    return 5.0 * static_cast<double>(rows) * static_cast<double>(q.shape(1)) > kLong;
  }

  void lookup(std::uintptr_t indices, bool wide, std::size_t count, std::uintptr_t out, std::size_t out_stride,
              int threads) const {
    const MaybeRelease released(release(count));
    embedding_lookup(table(), q.shape(0), {pointer<const void>(indices), wide, count}, pointer<float>(out), out_stride,
                     threads > 0 ? threads : num_threads());
  }

  void bag(std::uintptr_t indices, bool wide, std::size_t count, std::uintptr_t offsets, bool wide_offsets,
           std::size_t bags, bool last, std::size_t length, std::uintptr_t weights, std::int64_t padding, int mode,
           std::uintptr_t out, std::size_t out_stride, int threads) const {
    const MaybeRelease released(release(count + bags));
    embedding_bag(table(), q.shape(0), {pointer<const void>(indices), wide, count},
                  {pointer<const void>(offsets), wide_offsets, bags, last, length, pointer<const float>(weights),
                   padding, static_cast<BagMode>(mode)},
                  pointer<float>(out), out_stride, threads > 0 ? threads : num_threads());
  }
};

template <class Q>
void bind_table(nb::module_& m, const char* name) {
  using Bound = BoundEmbedding<Q>;
  nb::class_<Bound>(m, name)
      .def(nb::init<Array<const Q, 2>, Array<const float, 1>, std::optional<Array<const std::int32_t, 1>>>(), "q"_a,
           "scale"_a, "zero"_a.none())
      .def("lookup", &Bound::lookup, "indices"_a, "wide"_a, "count"_a, "out"_a, "out_stride"_a, "threads"_a)
      .def("bag", &Bound::bag, "indices"_a, "wide"_a, "count"_a, "offsets"_a, "wide_offsets"_a, "bags"_a, "last"_a,
           "length"_a, "weights"_a, "padding"_a, "mode"_a, "out"_a, "out_stride"_a, "threads"_a);
}

// The packed weight of a linear layer as a table.
struct BoundPackedEmbedding {
  Array<const std::uint8_t, 1> packed;
  Array<const float, 1> scale;
  std::optional<Array<const std::int32_t, 1>> zero;
  std::size_t rows;
  WeightFormat format;
  EmbeddingTable table;

  BoundPackedEmbedding(Array<const std::uint8_t, 1> data, std::size_t n, std::size_t k, Array<const float, 1> scales,
                       std::optional<Array<const std::int32_t, 1>> zeros, const std::string& name)
      : packed(std::move(data)), scale(std::move(scales)), zero(std::move(zeros)), rows(n), format(weight_format(name)) {
    const PackedData found = packed_data(packed, packed_bytes(n, k, format), format, "PackedEmbedding");
    expect(scale.shape(0) == n && (!zero || zero->shape(0) == n), "PackedEmbedding: scale and zero need one element a row");
    table = {reinterpret_cast<const std::uint8_t*>(found.data), true, k, scale.data(), zero ? zero->data() : nullptr};
  }

  void lookup(std::uintptr_t indices, bool wide, std::size_t count, std::uintptr_t out, int threads) const {
    const MaybeRelease released(20.0 * static_cast<double>(count) * static_cast<double>(table.dim) > kLong);
    packed_lookup(table, rows, {pointer<const void>(indices), wide, count}, pointer<float>(out), threads > 0 ? threads : num_threads(), format);
  }
};

}  // namespace

void bind_embedding(nb::module_& m) {
  nb::class_<BoundPackedEmbedding>(m, "PackedEmbedding")
      .def(nb::init<Array<const std::uint8_t, 1>, std::size_t, std::size_t, Array<const float, 1>, std::optional<Array<const std::int32_t, 1>>, const std::string&>(),
           "packed"_a, "rows"_a, "dim"_a, "scale"_a, "zero"_a.none(), "weight_format"_a)
      .def("lookup", &BoundPackedEmbedding::lookup, "indices"_a, "wide"_a, "count"_a, "out"_a, "threads"_a);
  bind_table<std::int8_t>(m, "EmbeddingInt8");
  bind_table<std::uint8_t>(m, "EmbeddingUint8");
}

}  // namespace octavo
