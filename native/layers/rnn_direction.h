// One direction of one recurrent layer while it runs: the parts that rnn.cpp schedules over threads.
#pragma once

#include <algorithm>
#include <cstring>

#include "layers/rnn.h"
#include "runtime/parallel.h"

namespace octavo {

constexpr std::size_t kGateFloats = 8192;  // gates of a pass: they stay in the L1 cache

// The batch as packed rows: the longest items first, so that the items alive at a step are the first.
struct Batch {
  std::size_t items = 0, steps = 0;     // steps: of the longest item
  const std::size_t* start = nullptr;   // [steps + 1]: rows of all the steps before
  const std::uint32_t* item = nullptr;  // [items]: which item a row is; null: in their own order
  const std::int64_t* length = nullptr; // of items; null: all have `steps`

  std::size_t alive(std::size_t step) const { return step < steps ? start[step + 1] - start[step] : 0; }
  std::size_t item_of(std::size_t row) const { return item ? item[row] : row; }
  std::size_t time(bool reverse, std::size_t step, std::size_t row) const {
    if (!reverse) return step;
    return (length ? static_cast<std::size_t>(length[item_of(row)]) : steps) - 1 - step;
  }
  // Whether the rows of a step lie one item apart at one time.
  bool plain(bool reverse) const { return !item && !(reverse && length); }
};

// What one thread works with.
struct ThreadMemory {
  std::uint8_t* panel;
  RowQuant* quant;
  float* gates;
};

// Rows as a product wants them: a panel with its scales, or (for float32 weights) the floats.
struct Operand {
  const std::uint8_t* panel;
  const RowQuant* quant;
  const float* rows;
  std::size_t stride;
};

struct DirectionRun {
  const KernelTable* t = nullptr;
  const Recurrent* net = nullptr;
  const Batch* batch = nullptr;
  const Direction* direction = nullptr;
  const float* x = nullptr;
  std::size_t x_step = 0, x_item = 0;
  float* y = nullptr;
  std::size_t y_step = 0, y_item = 0;
  const float *h0 = nullptr, *c0 = nullptr;
  float *h_end = nullptr, *c_end = nullptr;
  std::size_t chunk = 0;                // steps whose inputs' product is made at once
  std::size_t panel_stride = 0;         // bytes of a row in `panel`
  std::uint8_t* panel = nullptr;        // [chunk rows]: the input of a chunk
  RowQuant* quant = nullptr;            // [chunk rows]
  float* input_gates = nullptr;         // [chunk rows][gates * units]: its product
  float* h[2] = {nullptr, nullptr};     // [items][outputs]: before and after a step, in turns
  float* c = nullptr;                   // [items][units]
  float* second_input = nullptr;        // [items][units]: what goes into `second`
  float* update = nullptr;              // [items][units]: kGruReset's z

  std::size_t units() const { return round_up(net->hidden, kBlockN); }
  std::size_t outputs() const { return round_up(net->output, kBlockN); }
  std::size_t input_gates_stride() const { return units() * gates_of(net->kind); }
  // Products of a step, with a barrier between them.
  std::size_t products() const { return direction->second.empty() ? 1 : 2; }

  // All of it, on one thread.
  void run_all(const ThreadMemory& memory) const;
  // One phase of it, on one of several threads. A chunk has a phase for its input, then one for each
  // part of each step.
  void run_phase(std::size_t phase, int thread, int threads, const ThreadMemory& memory) const;

 private:
  // Rows of the chunk that begins with step `first`, and those of it before a step.
  std::size_t chunk_rows(std::size_t first) const {
    return batch->start[std::min(first + chunk, batch->steps)] - batch->start[first];
  }
  std::size_t rows_before(std::size_t step) const { return batch->start[step] - batch->start[step / chunk * chunk]; }
  void init_states(Share rows) const;
  void load_input(std::size_t first, Share rows) const;       // rows of the chunk from step `first` on
  void input_product(std::size_t first, Share blocks) const;  // its product, blocks of 16 units
  void step(std::size_t s, std::size_t product, int thread, int threads, const ThreadMemory& memory) const;
  void load_rows(const float* from, std::size_t stride, std::size_t at, std::size_t rows) const;
  Operand state_operand(const Matrix& m, const float* rows, std::size_t stride, std::size_t count, const ThreadMemory& memory) const;
  void multiply(const Matrix& m, const Operand& a, std::size_t rows, Share blocks, const float* bias,
                std::size_t bias_stride, float* out, std::size_t out_stride) const;
  void gate_step(std::size_t s, Share blocks, const Operand& a, const ThreadMemory& memory) const;
  void update_step(std::size_t s, Share blocks, const Operand& a, const ThreadMemory& memory) const;
  void project(std::size_t s, Share blocks, const Operand& a) const;
  void cells(std::size_t s, Share blocks, float* gates, std::size_t stride) const;
  void set_output(std::size_t s, Share blocks, CellOutput& o) const;
  void store_outputs(std::size_t s, std::size_t first, std::size_t count) const;
  void store_final_c(std::size_t s, Share blocks) const;
  template <class Pass>
  void passes(std::size_t s, Share blocks, std::size_t widest, Pass pass) const;
};

}  // namespace octavo
