#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <optional>
#include <tuple>

#include "layers/round_groups.h"
#include "python/bind.h"

namespace octavo {

using namespace nb::literals;

namespace {

using Bytes = Array<std::uint8_t, 2>;

// (signal, noise, the first channel with a NaN or an infinity or -1)
std::tuple<double, double, std::ptrdiff_t> bound_round_groups(
    std::uintptr_t w, int dtype, std::size_t n, std::size_t k, std::size_t stride, Array<const float, 1> importance, int bits,
    std::size_t group, bool affine, bool search, Bytes q, Array<std::uint16_t, 2> scale, std::optional<Bytes> zero,
    Array<float, 1> channel_scale) {
  expect((bits == 4 || bits == 8) && group > 0, "round_groups: bits must be 4 or 8, and a group has inputs");
  expect(importance.shape(0) == k, "round_groups: importance needs one element an input");
  expect(q.shape(0) == n && q.shape(1) == k, "round_groups: q needs the shape of w");
  expect(scale.shape(0) == n && scale.shape(1) * group >= k && scale.shape(1) > 0, "round_groups: scale needs one element a group");
  expect(affine == zero.has_value() && (!zero || (zero->shape(0) == n && zero->shape(1) == scale.shape(1))),
         "round_groups: zero needs one element a group, where groups are affine");
  expect(channel_scale.shape(0) == n, "round_groups: channel_scale needs one element a channel");
  const nb::gil_scoped_release release;
  const auto found = round_groups(
      {pointer<const void>(w), static_cast<DType>(dtype), n, k, stride, group, bits, affine, search, importance.data()},
      {q.data(), scale.data(), zero ? zero->data() : nullptr, channel_scale.data()});
  return {found.stats.signal, found.stats.noise, found.bad};
}

}  // namespace

void bind_round_groups(nb::module_& m) {
  m.def("round_groups", &bound_round_groups, "w"_a, "dtype"_a, "n"_a, "k"_a, "stride"_a, "importance"_a, "bits"_a, "group"_a,
        "affine"_a, "search"_a, "q"_a, "scale"_a, "zero"_a.none(), "channel_scale"_a);
}

}  // namespace octavo
