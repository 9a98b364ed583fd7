#include "layers/rnn.h"

#include <algorithm>
#include <cstring>

#include "contract/tables.h"
#include "layers/rnn_direction.h"
#include "layers/work.h"
#include "runtime/arena.h"
#include "runtime/cpu.h"
#include "runtime/parallel.h"

namespace octavo {
namespace {

struct RnnScratch;

// One call of recurrent(): all of its memory, planned before anything runs.
class Plan {
 public:
  Plan(const Recurrent& net, const Sequence& seq, int threads) : net_(net), seq_(seq), t_(table()), threads_(threads) {
    for (const auto& layer : net.layers) {
      directions_ = std::max(directions_, layer.size());
      for (const Direction& d : layer) {
        second_ = second_ || !d.second.empty();
        panel_ = std::max(panel_, row_bytes(d.input));
        thread_panel_ = std::max({thread_panel_, row_bytes(d.state), row_bytes(d.second)});
      }
    }
    // Input parts that stay in the L2 cache until their steps, beside weights and states, of rows enough to
    // read their weights for.
    static const std::size_t quarter_l2 = l2_cache_bytes() / 4;
    const std::size_t width = units() * gates_of(net.kind) * sizeof(float), rows = std::max(quarter_l2 / width, t_.rows_per_weight_read);
    // docs/notes/processors.md: "Products of several steps stay in the L2 cache"
    const std::size_t most = std::max<std::size_t>(1, std::min(rows / seq.batch, seq.steps)), chunks = (seq.steps + most - 1) / most;
    chunk_ = chunks ? (seq.steps + chunks - 1) / chunks : 1;  // all about the same
    lay_out();
    order();
  }

  const Batch& batch() const { return batch_; }

  DirectionRun direction_run(std::size_t layer, std::size_t which) const {
    const Direction& d = net_.layers[layer][which];
    const std::size_t directions = net_.layers[layer].size(), outs = directions * net_.output, at = layer * directions + which;
    DirectionRun w;
    w.t = &t_;
    w.net = &net_;
    w.batch = &batch_;
    w.direction = &d;
    w.x = layer == 0 ? seq_.x : between(layer - 1);
    w.x_item = layer == 0 ? seq_.x_item : directions_ * net_.output;
    w.x_step = layer == 0 ? seq_.x_step : seq_.batch * w.x_item;
    const bool last = layer + 1 == net_.layers.size();
    w.y = last ? seq_.y : between(layer);
    if (w.y) w.y += which * (last ? seq_.y_direction : net_.output);
    w.y_item = last ? seq_.y_item : outs;
    w.y_step = last ? seq_.y_step : seq_.batch * outs;
    const std::size_t h = at * seq_.batch * net_.output, c = at * seq_.batch * net_.hidden;
    w.h0 = seq_.h0 ? seq_.h0 + h : nullptr;
    w.c0 = seq_.c0 ? seq_.c0 + c : nullptr;
    w.h_end = seq_.h ? seq_.h + h : nullptr;
    w.c_end = seq_.c ? seq_.c + c : nullptr;
    w.chunk = chunk_;
    w.panel_stride = row_bytes(d.input);
    std::uint8_t* base = base_ + runs_ + which * run_bytes_;
    w.panel = base + input_;
    w.quant = reinterpret_cast<RowQuant*>(base + quant_);
    w.input_gates = floats(base, input_gates_);
    w.h[0] = floats(base, h_[0]);
    w.h[1] = floats(base, h_[1]);
    if (net_.kind == Recurrence::kLstm) w.c = floats(base, c_);
    if (!d.second.empty()) w.second_input = floats(base, second_input_);
    w.update = floats(base, update_);
    return w;
  }

  ThreadMemory thread_memory(int thread) const {
    std::uint8_t* base = base_ + threads_memory_ + static_cast<std::size_t>(thread) * thread_bytes_;
    return {base, reinterpret_cast<RowQuant*>(base + thread_quant_), floats(base, thread_gates_)};
  }

 private:
  static float* floats(std::uint8_t* base, std::size_t at) { return reinterpret_cast<float*>(base + at); }
  std::size_t units() const { return round_up(net_.hidden, kBlockN); }
  std::size_t row_bytes(const Matrix& m) const {
    return m.int8 ? round_up(m.k, kPanelK) * t_.bytes_per_input : round_up(m.k * sizeof(float), kAlign);
  }
  // The outputs of a layer that is not the last.
  float* between(std::size_t layer) const { return floats(base_, between_[layer % 2]); }

  void lay_out() {
    const std::size_t rows = round_up(chunk_ * seq_.batch, kPanelM), items = seq_.batch, u = units();
    Layout run;
    input_ = run.add<std::uint8_t>(rows * panel_);
    quant_ = run.add<RowQuant>(rows);
    input_gates_ = run.add<float>(chunk_ * items * u * gates_of(net_.kind));
    h_[0] = run.add<float>(items * round_up(net_.output, kBlockN));
    h_[1] = run.add<float>(items * round_up(net_.output, kBlockN));
    c_ = run.add<float>(net_.kind == Recurrence::kLstm ? items * u : 0);
    second_input_ = run.add<float>(second_ ? items * u : 0);
    update_ = run.add<float>(net_.kind == Recurrence::kGruReset ? items * u : 0);
    run_bytes_ = run.bytes();
    Layout memory;
    memory.add<std::uint8_t>(round_up(items, kPanelM) * thread_panel_);
    thread_quant_ = memory.add<RowQuant>(round_up(items, kPanelM));
    thread_gates_ = memory.add<float>(std::max(items * gates_of(net_.kind) * kBlockN, kGateFloats));
    thread_bytes_ = memory.bytes();
    Layout all;
    start_ = all.add<std::size_t>(seq_.steps + 1);
    item_ = all.add<std::uint32_t>(seq_.length ? items : 0);
    runs_ = all.add<std::uint8_t>(directions_ * run_bytes_);
    threads_memory_ = all.add<std::uint8_t>(static_cast<std::size_t>(threads_) * thread_bytes_);
    const std::size_t layers = net_.layers.size();
    for (std::size_t i = 0; i < 2; ++i)
      between_[i] = all.add<float>(i + 1 < layers ? seq_.steps * items * directions_ * net_.output : 0);
    base_ = scratch<RnnScratch>(all.bytes());
  }

  // Items by their lengths, and where the rows of each step begin.
  void order() {
    auto* start = reinterpret_cast<std::size_t*>(base_ + start_);
    batch_.items = seq_.batch;
    batch_.steps = seq_.steps;
    batch_.start = start;
    start[0] = 0;
    if (!seq_.length) {
      for (std::size_t s = 0; s < seq_.steps; ++s) start[s + 1] = start[s] + seq_.batch;
      return;
    }
    const std::int64_t* length = seq_.length;
    batch_.length = length;
    auto* item = reinterpret_cast<std::uint32_t*>(base_ + item_);
    for (std::size_t r = 0; r < seq_.batch; ++r) item[r] = static_cast<std::uint32_t>(r);
    const auto longer = [&](std::uint32_t a, std::uint32_t b) {
      return length[a] != length[b] ? length[a] > length[b] : a < b;
    };
    if (!std::is_sorted(item, item + seq_.batch, longer)) {
      std::sort(item, item + seq_.batch, longer);
      batch_.item = item;
    }
    std::size_t alive = seq_.batch;
    batch_.steps = static_cast<std::size_t>(length[item[0]]);
    for (std::size_t s = 0; s < batch_.steps; ++s) {
      while (length[item[alive - 1]] <= static_cast<std::int64_t>(s)) --alive;
      start[s + 1] = start[s] + alive;
    }
  }

  const Recurrent& net_;
  const Sequence& seq_;
  const KernelTable& t_;
  int threads_;
  Batch batch_;
  bool second_ = false;
  std::size_t directions_ = 0, panel_ = 0, thread_panel_ = 0, chunk_ = 0;
  std::uint8_t* base_ = nullptr;
  std::size_t start_ = 0, item_ = 0, runs_ = 0, run_bytes_ = 0, threads_memory_ = 0, thread_bytes_ = 0, between_[2] = {0, 0};
  std::size_t input_ = 0, quant_ = 0, input_gates_ = 0, h_[2] = {0, 0}, c_ = 0, second_input_ = 0, update_ = 0;
  std::size_t thread_quant_ = 0, thread_gates_ = 0;
};

// One layer on its threads.
struct LayerJob {
  const Plan& plan;
  DirectionRun runs[2];
  std::size_t count;
  bool thread_per_direction;  // each direction on a thread of its own, which meets no other
  bool split_threads;         // each direction on half of the threads

  int phases() const {
    const std::size_t steps = runs[0].batch->steps, chunks = (steps + runs[0].chunk - 1) / runs[0].chunk;
    return thread_per_direction ? 1 : static_cast<int>(std::max<std::size_t>(1, chunks + steps * runs[0].products()));
  }

  void operator()(int phase, int thread, int threads) const {
    const FloatMode mode;
    if (thread_per_direction) {
      for (std::size_t w = static_cast<std::size_t>(thread); w < count; w += static_cast<std::size_t>(threads))
        runs[w].run_all(plan.thread_memory(thread));
      return;
    }
    const bool split = split_threads && threads % 2 == 0;
    const auto at = static_cast<std::size_t>(phase);
    const ThreadMemory memory = plan.thread_memory(thread);
    if (split) return runs[thread % 2].run_phase(at, thread / 2, threads / 2, memory);
    for (std::size_t w = 0; w < count; ++w) runs[w].run_phase(at, thread, threads, memory);
  }
};

double step_microseconds(const Matrix& m, std::size_t rows) {
  const double macs = static_cast<double>(m.n) * static_cast<double>(m.k) * static_cast<double>(rows);
  return std::max(macs / (m.int8 ? rate::kMacs : rate::kFloatMacs), m.bytes() / rate::kCacheBytes);
}

// How a layer's directions go onto the threads, and how many of those earn their barriers.
int schedule(LayerJob& job, int threads) {
  double one = 0.0;
  for (std::size_t w = 0; w < job.count; ++w)
    one += step_microseconds(job.runs[w].direction->state, job.runs[w].batch->items) +
           step_microseconds(job.runs[w].direction->second, job.runs[w].batch->items);
  const bool alike = job.count == 2 && !job.runs[0].direction->state.int8 == !job.runs[1].direction->state.int8 &&
                     !job.runs[0].direction->input.int8 == !job.runs[1].direction->input.int8;
  const double whole = one * static_cast<double>(job.runs[0].batch->steps);
  job.split_threads = alike;
  job.thread_per_direction = true;
  threads = earned_threads(threads, whole);
  if (threads < 2) return 1;
  const double barriers = phase_microseconds() * static_cast<double>(job.runs[0].products());
  const int useful = std::min(threads, static_cast<int>(one / barriers));
  if (alike && useful < 4) return 2;
  if (useful < 2) return 1;
  job.thread_per_direction = false;
  return useful;
}

// Zeros behind each item's end.
void clear_rest(const Recurrent& net, const Sequence& seq) {
  for (std::size_t b = 0; b < seq.batch; ++b)
    for (std::size_t s = static_cast<std::size_t>(seq.length[b]); s < seq.steps; ++s)
      for (std::size_t w = 0; w < net.layers.back().size(); ++w)
        std::memset(seq.y + s * seq.y_step + b * seq.y_item + w * seq.y_direction, 0, net.output * sizeof(float));
}

}  // namespace

void recurrent(const Recurrent& net, const Sequence& seq, int threads) {
  if (seq.batch == 0) return;
  const Plan plan(net, seq, threads);
  if (seq.y && seq.length) clear_rest(net, seq);
  for (std::size_t layer = 0; layer < net.layers.size(); ++layer) {
    LayerJob job{plan, {}, net.layers[layer].size(), true, false};
    for (std::size_t w = 0; w < job.count; ++w) job.runs[w] = plan.direction_run(layer, w);
    const int used = schedule(job, threads);
    parallel(used, job.phases(), job);
  }
}

}  // namespace octavo
