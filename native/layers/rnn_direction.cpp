#include "layers/rnn_direction.h"

#include "runtime/cpu.h"

namespace octavo {
namespace {

void copy(float* to, const float* from, std::size_t n) { std::memcpy(to, from, n * sizeof(float)); }

// The columns of 16-blocks that there are of n.
Share columns(Share blocks, std::size_t n) {
  return {std::min(blocks.begin * kBlockN, n), std::min(blocks.end * kBlockN, n)};
}

// How many blocks of 16 units a pass should have so that turning back at the ends pays: parts that stay in
// the L2 cache, of weights that do not fit there beside the input parts of a direction; else as many as
// there are.
std::size_t blocks_a_pass(const Matrix& m, std::size_t gates) {
  static const std::size_t half_l2 = l2_cache_bytes() / 2;
  return std::max<std::size_t>(1, half_l2 / (m.int8->block_bytes() * gates));
}

}  // namespace

void DirectionRun::run_all(const ThreadMemory& memory) const {
  init_states({0, batch->items});
  for (std::size_t s = 0; s < batch->steps; ++s) {
    if (s % chunk == 0) {
      load_input(s, {0, chunk_rows(s)});
      input_product(s, {0, units() / kBlockN});
    }
    for (std::size_t p = 0; p < products(); ++p) step(s, p, 0, 1, memory);
  }
}

void DirectionRun::run_phase(std::size_t phase, int thread, int threads, const ThreadMemory& memory) const {
  const std::size_t phases = 1 + chunk * products(), first = phase / phases * chunk, at = phase % phases;
  if (at == 0) {
    if (first == 0) init_states(share(batch->items, 1, thread, threads));
    if (first < batch->steps) load_input(first, share(chunk_rows(first), 1, thread, threads));
    return;
  }
  if (at == 1) input_product(first, share(units() / kBlockN, 1, thread, threads));
  step(first + (at - 1) / products(), (at - 1) % products(), thread, threads, memory);
}

void DirectionRun::init_states(Share rows) const {
  const std::size_t outs = net->output, cells = net->hidden;
  for (std::size_t r = rows.begin; r < rows.end; ++r) {
    const std::size_t item = batch->item_of(r);
    float* state = h[0] + r * outputs();
    std::memset(state, 0, outputs() * sizeof(float));
    if (h0) copy(state, h0 + item * outs, outs);
    const bool empty = r >= batch->alive(0);  // no step will write what is left of it
    if (empty && h_end) copy(h_end + item * outs, state, outs);
    if (!c) continue;
    float* memory = c + r * units();
    std::memset(memory, 0, units() * sizeof(float));
    if (c0) copy(memory, c0 + item * cells, cells);
    if (empty && c_end) copy(c_end + item * cells, memory, cells);
  }
}

void DirectionRun::load_rows(const float* from, std::size_t stride, std::size_t at, std::size_t rows) const {
  const std::size_t k = direction->input.k;
  std::uint8_t* to = panel + at * panel_stride;
  if (direction->input.int8) return t->quantize_rows({from, rows, k, stride, 0, to, quant + at, false});
  for (std::size_t r = 0; r < rows; ++r) std::memcpy(to + r * panel_stride, from + r * stride, k * sizeof(float));
}

void DirectionRun::load_input(std::size_t first, Share rows) const {
  const bool reverse = direction->reverse, plain = batch->plain(reverse);
  const bool one_run = !reverse && !batch->length && (batch->items == 1 || x_step == batch->items * x_item);
  if (one_run) {
    const std::size_t stride = batch->items == 1 ? x_step : x_item;
    return load_rows(x + first * x_step + rows.begin * stride, stride, rows.begin, rows.end - rows.begin);
  }
  const std::size_t last = std::min(first + chunk, batch->steps);
  for (std::size_t s = first; s < last; ++s) {
    const std::size_t before = rows_before(s), alive = batch->alive(s);
    std::size_t r = std::max(rows.begin, before) - before;
    const std::size_t end = std::min(std::max(rows.end, before) - before, alive);
    if (plain && r < end) load_rows(x + batch->time(reverse, s, 0) * x_step + r * x_item, x_item, before + r, end - r);
    for (; !plain && r < end; ++r)
      load_rows(x + batch->time(reverse, s, r) * x_step + batch->item_of(r) * x_item, 0, before + r, 1);
  }
}

void DirectionRun::multiply(const Matrix& m, const Operand& a, std::size_t rows, Share blocks, const float* bias,
                   std::size_t bias_stride, float* out, std::size_t out_stride) const {
  if (!m.int8)
    return t->float_gemm({a.rows, rows, a.stride, m.k, m.weight, blocks.begin, blocks.end, bias, bias_stride, out,
                          out_stride});
  Gemm g;  // every field is set below: GCC clears structures with `rep stos`, which costs as much as 16 units
  g.panel = a.panel;
  g.rows = rows;
  g.quant = a.quant;
  g.group = 0;
  g.weight = *m.int8;
  g.block_begin = blocks.begin;
  g.block_end = blocks.end;
  g.bias = bias;
  g.bias_stride = bias_stride;
  g.factor = nullptr;
  g.factor_stride = 0;
  g.residual = nullptr;
  g.residual_stride = 0;
  g.activation = Activation::kNone;
  g.out = out;
  g.out_stride = out_stride;
  g.raw = nullptr;
  g.raw_stride = 0;
  g.chunk = 0;
  t->gemm(g);
}

void DirectionRun::input_product(std::size_t first, Share blocks) const {
  const Matrix& m = direction->input;
  const std::size_t last = std::min(first + chunk, batch->steps), gates = gates_of(net->kind);
  const Operand a{panel, quant, reinterpret_cast<const float*>(panel), panel_stride / sizeof(float)};
  multiply(m, a, batch->start[last] - batch->start[first], {blocks.begin * gates, blocks.end * gates}, m.bias, 0, input_gates,
           input_gates_stride());
}

// Each thread quantizes the whole state for itself: cheaper than to meet once more.
Operand DirectionRun::state_operand(const Matrix& m, const float* rows, std::size_t stride, std::size_t count, const ThreadMemory& memory) const {
  if (m.int8) t->quantize_rows({rows, count, m.k, stride, 0, memory.panel, memory.quant, false});
  return {memory.panel, memory.quant, rows, stride};
}

// Blocks in passes, every other step from the other end: what the cache still holds of the weights is
// used first.
template <class Pass>
void DirectionRun::passes(std::size_t s, Share blocks, std::size_t widest, Pass pass) const {
  const std::size_t n = blocks.end - blocks.begin, count = (n + widest - 1) / widest;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = s % 2 ? count - 1 - i : i;
    pass(Share{blocks.begin + n * at / count, blocks.begin + n * (at + 1) / count});
  }
}

void DirectionRun::step(std::size_t s, std::size_t product, int thread, int threads, const ThreadMemory& memory) const {
  const std::size_t rows = batch->alive(s);
  const Share blocks = share(units() / kBlockN, 1, thread, threads);
  if (product == 0) return gate_step(s, blocks, state_operand(direction->state, h[s % 2], outputs(), rows, memory), memory);
  const Operand a = state_operand(direction->second, second_input, units(), rows, memory);
  if (net->kind == Recurrence::kLstm) project(s, share(direction->second.blocks(), 1, thread, threads), a);
  else update_step(s, blocks, a, memory);
}

// In place, field by field: a copy would load what was stored a moment ago in other sizes, which waits
// until all stores before it are done.
void DirectionRun::set_output(std::size_t s, Share blocks, CellOutput& o) const {
  const std::size_t first = blocks.begin * kBlockN;
  const bool projected = net->kind == Recurrence::kLstm && second_input;
  const bool direct = !projected && y && batch->plain(direction->reverse);
  o.rows = batch->alive(s);
  o.units = (blocks.end - blocks.begin) * kBlockN;
  o.h = (projected ? second_input : h[(s + 1) % 2]) + first;
  o.h_stride = projected ? units() : outputs();
  o.y = direct ? y + batch->time(direction->reverse, s, 0) * y_step + first : nullptr;
  o.y_stride = y_item;
  o.y_units = net->output - first;
}

void DirectionRun::gate_step(std::size_t s, Share all, const Operand& a, const ThreadMemory& memory) const {
  const std::size_t rows = batch->alive(s), xs = input_gates_stride();
  const std::size_t n = net->kind == Recurrence::kGruReset ? 2 : gates_of(net->kind);  // gates of this product
  const bool adds = net->kind != Recurrence::kGru && net->kind != Recurrence::kGruReset;
  const std::size_t widest = std::min(std::max<std::size_t>(1, kGateFloats / (rows * n * kBlockN)),
                                      direction->state.int8 ? blocks_a_pass(direction->state, n) : units());
  const float* x_part = input_gates + rows_before(s) * xs;
  passes(s, all, widest, [&](Share blocks) {
    const std::size_t first = blocks.begin * kBlockN, stride = (blocks.end - blocks.begin) * n * kBlockN;
    multiply(direction->state, a, rows, {blocks.begin * n, blocks.end * n}, adds ? x_part : direction->state.bias,
             adds ? xs : 0, memory.gates - first * n, stride);
    cells(s, blocks, memory.gates, stride);
  });
  if (c_end) store_final_c(s, all);
  if (direction->second.empty()) store_outputs(s, all.begin * kBlockN, (all.end - all.begin) * kBlockN);
}

// From the gates of a pass to its states.
void DirectionRun::cells(std::size_t s, Share blocks, float* gates, std::size_t stride) const {
  const std::size_t first = blocks.begin * kBlockN, xs = input_gates_stride();
  const float *x = input_gates + rows_before(s) * xs + first * gates_of(net->kind), *before = h[s % 2] + first;
  switch (net->kind) {
    case Recurrence::kLstm: {
      LstmCell cell;
      set_output(s, blocks, cell.out);
      cell.gates = gates;
      cell.gates_stride = stride;
      cell.c = c + first;
      cell.c_stride = units();
      cell.clip = net->clip;
      cell.powers = direction->powers;
      return t->lstm_cell(cell);
    }
    case Recurrence::kGru: {
      GruCell cell;
      set_output(s, blocks, cell.out);
      cell.x = x;
      cell.x_stride = xs;
      cell.gates = gates;
      cell.gates_stride = stride;
      cell.before = before;
      cell.before_stride = outputs();
      cell.clip = net->clip;
      cell.powers = direction->powers;
      return t->gru_cell(cell);
    }
    case Recurrence::kGruReset:
      return t->reset_cell({batch->alive(s), (blocks.end - blocks.begin) * kBlockN, x, xs, gates, stride, before,
                            outputs(), second_input + first, units(), update + first, units(), net->clip});
    case Recurrence::kRnnTanh:
    case Recurrence::kRnnRelu: {
      RnnCell cell;
      set_output(s, blocks, cell.out);
      cell.gates = gates;
      cell.gates_stride = stride;
      cell.relu = net->kind == Recurrence::kRnnRelu;
      cell.clip = net->clip;
      return t->rnn_cell(cell);
    }
  }
}

void DirectionRun::update_step(std::size_t s, Share all, const Operand& a, const ThreadMemory& memory) const {
  const std::size_t rows = batch->alive(s), widest = std::max<std::size_t>(1, kGateFloats / (rows * kBlockN));
  const float* x_part = input_gates + rows_before(s) * input_gates_stride();
  passes(s, all, widest, [&](Share blocks) {
    const std::size_t first = blocks.begin * kBlockN, stride = (blocks.end - blocks.begin) * kBlockN;
    multiply(direction->second, a, rows, blocks, nullptr, 0, memory.gates - first, stride);
    UpdateCell cell;
    set_output(s, blocks, cell.out);
    cell.x = x_part + first * 3;
    cell.x_stride = input_gates_stride();
    cell.gates = memory.gates;
    cell.gates_stride = stride;
    cell.update = update + first;
    cell.update_stride = units();
    cell.before = h[s % 2] + first;
    cell.before_stride = outputs();
    cell.clip = net->clip;
    t->update_cell(cell);
  });
  store_outputs(s, all.begin * kBlockN, (all.end - all.begin) * kBlockN);
}

void DirectionRun::project(std::size_t s, Share blocks, const Operand& a) const {
  multiply(direction->second, a, batch->alive(s), blocks, nullptr, 0, h[(s + 1) % 2], outputs());
  if (y && batch->plain(direction->reverse)) {
    const Share own = columns(blocks, net->output);
    float* to = y + batch->time(direction->reverse, s, 0) * y_step + own.begin;
    for (std::size_t r = 0; r < batch->alive(s); ++r)
      copy(to + r * y_item, h[(s + 1) % 2] + r * outputs() + own.begin, own.end - own.begin);
  }
  store_outputs(s, blocks.begin * kBlockN, (blocks.end - blocks.begin) * kBlockN);
}

// What a step's end leaves to do in `count` columns: y where its rows are scattered, and the states of
// items that end here.
void DirectionRun::store_outputs(std::size_t s, std::size_t first, std::size_t count) const {
  first = std::min(first, net->output);
  count = std::min(count, net->output - first);
  const float* after = h[(s + 1) % 2] + first;
  if (y && !batch->plain(direction->reverse))
    for (std::size_t r = 0; r < batch->alive(s); ++r) {
      float* to = y + batch->time(direction->reverse, s, r) * y_step + batch->item_of(r) * y_item + first;
      copy(to, after + r * outputs(), count);
    }
  if (h_end)
    for (std::size_t r = batch->alive(s + 1); r < batch->alive(s); ++r)
      copy(h_end + batch->item_of(r) * net->output + first, after + r * outputs(), count);
}

void DirectionRun::store_final_c(std::size_t s, Share blocks) const {
  const Share own = columns(blocks, net->hidden);
  for (std::size_t r = batch->alive(s + 1); r < batch->alive(s); ++r)
    copy(c_end + batch->item_of(r) * net->hidden + own.begin, c + r * units() + own.begin, own.end - own.begin);
}

}  // namespace octavo
