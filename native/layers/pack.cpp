#include "layers/pack.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "contract/tables.h"

namespace octavo {
namespace {

constexpr std::size_t kCell = kBlockN * kBlockK;  // bytes of one block
// Inputs of a tile: 16 blocks, and a whole cache line of each row. Where rows lie a power of two apart, the
// lines of 16 rows fall on each other in the first cache, and one that is left half read is fetched again.
constexpr std::size_t kTileK = 64;
constexpr std::size_t kTileBytes = kTileK * kBlockN;
constexpr std::size_t kShare = 1 << 19;  // bytes worth a thread's while
constexpr std::size_t kStreamed = 4 << 20;  // bytes from which results go past the caches, in whole lines

std::size_t block_bytes(std::size_t k) { return round_up(k, kBlockK) * kBlockN; }

bool lines(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % kAlign == 0; }

// A block's columns are the rows of q: 16 rows of `tiles` times 64 inputs to 16 blocks each, and back.
void pack_tiles(const KernelTable& t, const std::int8_t* q, std::size_t stride, std::int8_t* to, std::size_t tiles, bool streamed) {
  t.transpose_words({q, stride, kTileK, to, kCell, kTileBytes, tiles, streamed});
}
void unpack_tiles(const KernelTable& t, const std::int8_t* from, std::int8_t* q, std::size_t stride, std::size_t tiles, bool streamed) {
  t.transpose_words({from, kCell, kTileBytes, q, stride, kTileK, tiles, streamed});
}

// Writes 16 rows past the caches, though they do not begin with a line: strips of their tiles gather in
// the first cache, and whole lines go on from there.
class Strips {
 public:
  Strips(const KernelTable& t, std::int8_t* q, std::size_t stride) : t_(t), q_(q), stride_(stride) {}

  // `whole` inputs, a multiple of a tile's, of a row of blocks.
  void unpack(const std::int8_t* from, std::size_t whole) {
    // Lines that rows share are read first, one after another if they were not asked for.
    for (std::size_t c = 0; c < kBlockN; ++c) {
      __builtin_prefetch(q_ + c * stride_, 1);
      __builtin_prefetch(q_ + c * stride_ + whole, 1);
    }
    for (std::size_t i = 0; i < whole; i += kWide) {
      const std::size_t wide = std::min(kWide, whole - i);
      unpack_tiles(t_, from + i * kBlockN, rows_[0] + kTileK, sizeof rows_[0], wide / kTileK, false);
      for (std::size_t c = 0; c < kBlockN; ++c) write(c, i, wide, i + wide == whole);
    }
  }

 private:
  static constexpr std::size_t kWide = 3 * kTileK;  // an eighth faster than 4, measured; 2 is as fast, 8 slower

  // Of row c the inputs i .. i + wide - 1. Its lines end short of them, where the row begins amid a line:
  // the rest stays for the next strip.
  void write(std::size_t c, std::size_t i, std::size_t wide, bool last) {
    std::int8_t *row = rows_[c], *to = q_ + c * stride_;
    const std::size_t head = (kAlign - reinterpret_cast<std::uintptr_t>(to) % kAlign) % kAlign;
    if (i == 0) std::memcpy(to, row + kTileK, head);
    const std::size_t before = i == 0 ? 0 : kTileK;  // of the strip before
    t_.stream_lines(to + i + head - before, row + kTileK + head - before, (wide + before) / kTileK - 1);
    if (last) std::memcpy(to + i + wide + head - kTileK, row + wide + head, kTileK - head);
    else std::memcpy(row, row + wide, kTileK);
  }

  const KernelTable& t_;
  std::int8_t* q_;
  std::size_t stride_;
  alignas(kAlign) std::int8_t rows_[kBlockN][kTileK + kWide];  // a tile of the strip before, and the strip
};

int threads_for(std::size_t n, std::size_t k) {
  return threads_ahead_of_time(std::min(n * k / kShare, (n + kBlockN - 1) / kBlockN));
}

}  // namespace

WeightFormat weight_format(const std::string& name) {
  std::string known = "int8";
  if (name == known) return WeightFormat::kInt8;
  for (const int bits : {4, 8})
    for (const std::size_t group : {32, 64, 128})
      for (const std::string& zeros : {std::string(), std::string("-affine"), std::string("-minimum")}) {
        const std::string called = "int" + std::to_string(bits) + "-" + std::to_string(group) + zeros;
        if (name == called) return {group, bits, zeros == "-affine", zeros == "-minimum"};
        known += ", " + called;
      }
  throw std::invalid_argument("weights are in the format '" + name + "', which this release of Octavo does not know (it knows " +
                              known + "); install a newer one, or quantize the model again");
}

std::size_t packed_bytes(std::size_t n, std::size_t k, const WeightFormat& format) {
  return round_up(n, kBlockN) / kBlockN * (format.group ? GroupBlock(format, k).bytes : block_bytes(k));
}

// docs/notes/processors.md: "Packing is held against a copy"
bool streams(std::size_t n, std::size_t k, const std::int8_t* packed) { return packed_bytes(n, k) >= kStreamed && lines(packed); }

void pack_block(const KernelTable& t, const std::int8_t* q, std::size_t stride, std::size_t columns, std::size_t k, std::int8_t* to, bool streamed) {
  std::size_t i = columns == kBlockN ? k / kTileK * kTileK : 0;
  pack_tiles(t, q, stride, to, i / kTileK, streamed);
  for (; i < k; i += kTileK) {
    const std::size_t inputs = std::min(k - i, kTileK);
    std::int8_t rows[kTileBytes] = {}, cells[kTileBytes];
    for (std::size_t c = 0; c < columns; ++c) std::memcpy(rows + c * kTileK, q + c * stride + i, inputs);
    pack_tiles(t, rows, kTileK, cells, 1, false);
    std::memcpy(to + i * kBlockN, cells, round_up(inputs, kBlockK) * kBlockN);
  }
}

void pack(const std::int8_t* q, std::size_t n, std::size_t k, std::size_t stride, std::int8_t* packed) {
  const KernelTable& t = table();
  const bool streamed = streams(n, k, packed);
  for_each_block(n, threads_for(n, k), streamed, [&](std::size_t first, std::size_t columns, std::size_t) {
    pack_block(t, q + first * stride, stride, columns, k, packed + first / kBlockN * block_bytes(k), streamed);
  });
}

void unpack(const std::int8_t* packed, std::size_t n, std::size_t k, std::size_t stride, std::int8_t* q) {
  const KernelTable& t = table();
  const bool streamed = n * k >= kStreamed, whole_lines = lines(q) && stride % kAlign == 0;
  // It may be while others infer.
  for_each_block(n, std::min(threads_for(n, k), num_threads()), streamed, [&](std::size_t first, std::size_t columns, std::size_t) {
    const std::int8_t* from = packed + first / kBlockN * block_bytes(k);
    std::int8_t* to = q + first * stride;
    std::size_t i = columns == kBlockN ? k / kTileK * kTileK : 0;
    if (streamed && !whole_lines) Strips(t, to, stride).unpack(from, i);
    else unpack_tiles(t, from, to, stride, i / kTileK, streamed);
    for (; i < k; i += kTileK) {
      const std::size_t inputs = std::min(k - i, kTileK);
      std::int8_t cells[kTileBytes] = {}, rows[kTileBytes];
      std::memcpy(cells, from + i * kBlockN, round_up(inputs, kBlockK) * kBlockN);
      unpack_tiles(t, cells, rows, kTileK, 1, false);
      for (std::size_t c = 0; c < columns; ++c) std::memcpy(to + c * stride + i, rows + c * kTileK, inputs);
    }
  });
}

std::int32_t column_pair(std::int32_t sum) {
  const std::int32_t c = -sum, high = c >= 0 ? c / 128 : -((-c + 127) / 128);
  return int16_pair(c - high * 128, high);
}

std::size_t sections(std::size_t k, std::size_t group) { return groups_of(k, group ? group : kChunkK); }

void column_sums(const std::int8_t* packed, std::size_t n, std::size_t k, std::size_t group, const std::int32_t* zero, std::int32_t* colsum) {
  const std::size_t step = group ? group : kChunkK, padded = round_up(n, kBlockN);
  for (std::size_t s = 0; s < sections(k, group); ++s)
    for (std::size_t first = 0; first < padded; first += kBlockN) {
      const std::int8_t* block = packed + first / kBlockN * block_bytes(k);
      std::int32_t sums[kBlockN] = {};
      const std::size_t last = (s + 1) * step < k ? (s + 1) * step : round_up(k, kBlockK);  // padding is 0
      for (std::size_t i = s * step; i < last; i += kBlockK)
        for (std::size_t c = 0; c < kBlockN; ++c) {
          const std::int8_t* cell = block + i * kBlockN + c * kBlockK;
          sums[c] += cell[0] + cell[1] + cell[2] + cell[3];
        }
      for (std::size_t c = 0; c < kBlockN; ++c)
        colsum[s * padded + first + c] = group ? int16_pair(-sums[c], zero ? zero[first + c] : 0) : column_pair(sums[c]);
    }
}

namespace {

// Blocks of outputs of a weight in groups.
template <class Work>
void for_each_group_block(std::size_t n, std::size_t k, bool beside_inference, const Work& work) {
  const int threads = threads_for(n, k);
  for_each_block(n, beside_inference ? std::min(threads, num_threads()) : threads, false,
                 [&](std::size_t first, std::size_t columns, std::size_t) { work(first, columns); });
}

float float_of_half(std::uint16_t half) {
  float x;
  table().widen(DType::kFloat16, &half, &x, 1);
  return x;
}

}  // namespace

void pack_groups(const Grouped<const std::uint8_t>& from, std::size_t n, std::size_t k, const WeightFormat& f, std::int8_t* packed) {
  const GroupBlock of(f, k);
  for_each_group_block(n, k, false, [&](std::size_t first, std::size_t columns) {
    auto* block = reinterpret_cast<std::uint8_t*>(packed) + first / kBlockN * of.bytes;
    std::memset(block, 0, of.bytes);
    for (std::size_t c = 0; c < kBlockN; ++c) {
      float offset = 0.0f;
      for (std::size_t j = 0; j < of.groups; ++j) {
        std::uint8_t* group = block + j * of.group_bytes;
        const bool is_there = c < columns;
        const std::size_t at = (first + c) * of.groups + j;
        const std::uint16_t scale = is_there ? from.scale[at] : 0;
        const int zero = f.affine ? (is_there ? from.zero[at] : 0) : f.zero();
        std::memcpy(group + of.scales + c * 2, &scale, 2);
        if (f.affine && f.bits == 8) group[of.zeros + c] = static_cast<std::uint8_t>(zero);
        if (f.affine && f.bits == 4) group[of.zeros + c % 8] |= static_cast<std::uint8_t>(zero << (c < 8 ? 0 : 4));
        std::int32_t sum = 0;
        for (std::size_t i = 0; i < f.group; ++i) {
          const std::size_t input = j * f.group + i;
          const int q = is_there && input < k ? from.q[(first + c) * k + input] : zero;
          sum += q - zero;
          if (f.bits == 8) group[of.place(c, i)] = static_cast<std::uint8_t>(q);
          else group[of.place(c, i)] |= static_cast<std::uint8_t>(q << GroupBlock::shift(i));
        }
        offset = __builtin_fmaf(static_cast<float>(sum), float_of_half(scale), offset);
        if (!f.minimum || !is_there) continue;
        const std::uint16_t minimum = GroupBlock::half(from.zero, at);
        std::memcpy(group + of.zeros + c * sizeof minimum, &minimum, sizeof minimum);
        const std::size_t count = std::min(k, (j + 1) * f.group) - std::min(k, j * f.group);
        offset = __builtin_fmaf(static_cast<float>(count), float_of_half(minimum), offset);
      }
      std::memcpy(block + of.offsets + c * sizeof(float), &offset, sizeof(float));
    }
  });
}

void unpack_groups(const std::int8_t* packed, std::size_t n, std::size_t k, const WeightFormat& f, const Grouped<std::uint8_t>& to) {
  const GroupBlock of(f, k);
  for_each_group_block(n, k, true, [&](std::size_t first, std::size_t columns) {
    const std::int8_t* block = packed + first / kBlockN * of.bytes;
    for (std::size_t c = 0; c < columns; ++c) {
      for (std::size_t i = 0; i < k; ++i) to.q[(first + c) * k + i] = static_cast<std::uint8_t>(of.integer(block, c, i));
      for (std::size_t j = 0; j < of.groups; ++j) {
        const std::size_t at = (first + c) * of.groups + j;
        to.scale[at] = of.scale(block, c, j);
        if (f.affine) to.zero[at] = static_cast<std::uint8_t>(of.zero(block, c, j));
        if (!f.minimum) continue;
        const std::uint16_t minimum = of.minimum(block, c, j);
        std::memcpy(to.zero + at * sizeof minimum, &minimum, sizeof minimum);
      }
    }
  });
}

}  // namespace octavo
