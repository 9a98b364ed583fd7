#include "layers/half_linear.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "contract/tables.h"
#include "layers/work.h"
#include "runtime/parallel.h"

namespace octavo {
namespace {

constexpr std::size_t kStepN = 4;                         // blocks that threads share columns in
constexpr std::size_t kTileRows = 48, kTileBlocks = 16;   // float32 staging of 16-bit outputs
constexpr std::size_t kWide = kTileBlocks * kBlockN;
constexpr std::size_t kWidenedBytes = 4 << 20;            // of 16-bit rows as float32 at a time

struct HalfScratch;

// One call of half_linear(), as its threads see it.
struct Call {
  const KernelTable& t;
  const HalfLinear& layer;
  Rows in;
  Output out;
  bool by_rows = false;
  float* widened = nullptr;  // the rows of a 16-bit input
  float* staging = nullptr;  // two tiles a thread, for a 16-bit output

  void plan(int threads) {
    const auto workers = static_cast<std::size_t>(threads);
    by_rows = (layer.n + kBlockN - 1) / kBlockN < kStepN * workers && in.rows >= 2 * workers;
    Layout layout;
    const std::size_t rows = layout.add<float>(in.type == DType::kFloat32 ? 0 : in.rows * layer.k);
    const std::size_t tiles = layout.add<float>(out.type == DType::kFloat32 ? 0 : 2 * kTileRows * kWide * workers);
    std::uint8_t* base = scratch<HalfScratch>(layout.bytes());
    widened = reinterpret_cast<float*>(base + rows);
    staging = reinterpret_cast<float*>(base + tiles);
  }

  void widen(Share rows) const {
    const auto* x = static_cast<const std::uint16_t*>(in.x);
    for (std::size_t m = rows.begin; m < rows.end; ++m)
      t.widen(in.type, x + m * in.stride, widened + m * layer.k, layer.k);
  }

  HalfGemm gemm(Share rows, Share blocks) const {
    HalfGemm g{};
    const bool wide = in.type == DType::kFloat32;
    g.stride = wide ? in.stride : layer.k;
    g.x = (wide ? static_cast<const float*>(in.x) : widened) + rows.begin * g.stride;
    g.rows = rows.end - rows.begin;
    g.weight = layer.weight;
    g.type = layer.type;
    g.n = layer.n;
    g.k = layer.k;
    g.block_begin = blocks.begin;
    g.block_end = blocks.end;
    g.bias = layer.bias;
    g.activation = layer.activation;
    return g;
  }

  void multiply(Share rows, Share blocks, int thread) const {
    if (out.type == DType::kFloat32) {
      HalfGemm g = gemm(rows, blocks);
      g.out = static_cast<float*>(out.data) + rows.begin * out.stride;
      g.out_stride = out.stride;
      if (out.residual) g.residual = static_cast<const float*>(out.residual) + rows.begin * out.residual_stride;
      g.residual_stride = out.residual_stride;
      t.half_gemm(g);
      return;
    }
    for (std::size_t b = blocks.begin; b < blocks.end; b += kTileBlocks)
      for (std::size_t m = rows.begin; m < rows.end; m += kTileRows)
        staged({m, std::min(m + kTileRows, rows.end)}, {b, std::min(b + kTileBlocks, blocks.end)}, thread);
  }

  // One tile through float32 scratch.
  void staged(Share rows, Share blocks, int thread) const {
    float* tile = staging + static_cast<std::size_t>(thread) * 2 * kTileRows * kWide;
    float* extra = tile + kTileRows * kWide;
    const std::size_t column = blocks.begin * kBlockN, columns = std::min(blocks.end * kBlockN, layer.n) - column;
    HalfGemm g = gemm(rows, blocks);
    if (out.residual) {
      const auto* from = static_cast<const std::uint16_t*>(out.residual) + column;
      for (std::size_t m = rows.begin; m < rows.end; ++m)
        t.widen(out.type, from + m * out.residual_stride, extra + (m - rows.begin) * kWide, columns);
      g.residual = extra - column;  // the kernel adds the column
      g.residual_stride = kWide;
    }
    g.out = tile - column;
    g.out_stride = kWide;
    t.half_gemm(g);
    auto* to = static_cast<std::uint16_t*>(out.data) + column;
    for (std::size_t m = rows.begin; m < rows.end; ++m)
      t.narrow(out.type, tile + (m - rows.begin) * kWide, to + m * out.stride, columns);
  }

  void operator()(int phase, int thread, int threads) const {
    const FloatMode mode;
    const Share all_rows{0, in.rows}, blocks{0, (layer.n + kBlockN - 1) / kBlockN};
    if (phase == 0 && in.type != DType::kFloat32) return widen(share(in.rows, 1, thread, threads));
    if (by_rows) multiply(share(in.rows, 1, thread, threads), blocks, thread);
    else multiply(all_rows, share(blocks.end, kStepN, thread, threads), thread);
  }
};

void run(const HalfLinear& layer, const Rows& in, const Output& out, int threads) {
  Call call{table(), layer, in, out};
  call.plan(threads);
  parallel(threads, in.type == DType::kFloat32 ? 1 : 2, call);
}

// Row `m` of rows that begin at `at`.
template <class T>
T* row_of(T* at, DType type, std::size_t m, std::size_t stride) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::uint8_t, std::uint8_t>;
  return at ? static_cast<Byte*>(at) + m * stride * (type == DType::kFloat32 ? 4 : 2) : nullptr;
}

}  // namespace

std::size_t half_packed_size(std::size_t n, std::size_t k) { return round_up(n, kBlockN) * k; }

void half_pack(const std::uint16_t* w, std::size_t n, std::size_t k, std::uint16_t* packed) {
  constexpr std::size_t kStep = 64;  // inputs at a time, so that both sides stay in the cache
  for (std::size_t first = 0; first < n; first += kBlockN)
    for (std::size_t begin = 0; begin < k; begin += kStep)
      for (std::size_t c = 0; c < kBlockN; ++c) {
        std::uint16_t* to = packed + first * k + c;
        const std::uint16_t* from = first + c < n ? w + (first + c) * k : nullptr;
        for (std::size_t i = begin; i < std::min(begin + kStep, k); ++i) to[i * kBlockN] = from ? from[i] : 0;
      }
}

void half_unpack(const std::uint16_t* packed, std::size_t n, std::size_t k, std::uint16_t* w) {
  for (std::size_t c = 0; c < n; ++c) {
    const std::uint16_t* from = packed + c / kBlockN * kBlockN * k + c % kBlockN;
    for (std::size_t i = 0; i < k; ++i) w[c * k + i] = from[i * kBlockN];
  }
}

HalfLinear::HalfLinear(const std::uint16_t* packed, DType type_, std::size_t n_, std::size_t k_, const float* bias_,
                       Activation activation_)
    : weight(packed), type(type_), n(n_), k(k_), activation(activation_) {
  const std::size_t bytes = round_up(n, kBlockN) * sizeof(float);
  auto* padded = reinterpret_cast<float*>(arrays_.need(bytes));
  if (bytes) std::memset(padded, 0, bytes);
  if (bias_) std::copy(bias_, bias_ + n, padded);
  bias = padded;
}

void half_linear(const HalfLinear& layer, const Rows& in, const Output& out, int threads) {
  if (in.rows == 0 || layer.n == 0) return;
  const double weights = static_cast<double>(layer.n) * static_cast<double>(layer.k);
  threads = earned_threads(threads, std::max(weights * static_cast<double>(in.rows) / rate::kFloatMacs, rate::weight_microseconds(weights * 2.0)),
                           in.type == DType::kFloat32 ? 1.0 : 2.0);
  const std::size_t fit = kWidenedBytes / sizeof(float) / std::max<std::size_t>(1, layer.k);
  const std::size_t chunk = in.type == DType::kFloat32 ? in.rows : std::max(kTileRows, fit / kTileRows * kTileRows);
  for (std::size_t m = 0; m < in.rows; m += chunk) {
    Rows part = in;
    part.rows = std::min(chunk, in.rows - m);
    part.x = row_of(in.x, in.type, m, in.stride);
    Output to = out;
    to.data = row_of(out.data, out.type, m, out.stride);
    to.residual = row_of(out.residual, out.type, m, out.residual_stride);
    run(layer, part, to, threads);
  }
}

}  // namespace octavo
