// The table entries that are one template for every instruction set.
#pragma once

#include "contract/kernels.h"
#include "isa/activations.h"
#include "isa/attention_panel.h"
#include "isa/attention_rows.h"
#include "isa/cells.h"
#include "isa/convolution.h"
#include "isa/elementwise_rows.h"
#include "isa/embedding_rows.h"
#include "isa/float_product.h"
#include "isa/half.h"
#include "isa/half_product.h"
#include "isa/norm_rows.h"
#include "isa/quantize_columns.h"
#include "isa/quantize_weight_runs.h"
#include "isa/read_bytes.h"
#include "isa/rotary_rows.h"
#include "isa/round_groups.h"
#include "isa/row_range.h"
#include "isa/transpose_words.h"

namespace octavo {
namespace {

// V: a vector_*.h's; Words: a transpose_words*.h's.
template <class V, class Words>
void fill_table(KernelTable& t) {
  t.read = read_bytes<V>;
  t.activate = Elementwise<V>::activate;
  t.lstm_cell = Cells<V>::lstm;
  t.gru_cell = Cells<V>::gru;
  t.reset_cell = Cells<V>::reset;
  t.update_cell = Cells<V>::update;
  t.rnn_cell = Cells<V>::rnn;
  t.float_gemm = FloatProduct<V>::gemm;
  t.widen = Halves<V>::widen;
  t.narrow = Halves<V>::narrow;
  t.half_gemm = HalfProduct<V>::gemm;
  t.embedding_lookup = Embeddings<V>::lookup;
  t.embedding_bag = Embeddings<V>::bag;
  t.attention_panel = AttentionPanels<V>::template attention<false>;
  t.attention_pairs = AttentionPanels<V>::template attention<true>;
  t.pair_rows = pair_rows<V>;
  t.key_bits = key_bits;
  t.attention_rows = RowAttention<V>::attention;
  t.merge_parts = RowAttention<V>::merge;
  t.norm_rows = Norms<V>::rows;
  t.rotary = Rotaries<V>::rows;
  t.unary = ElementRows<V>::unary;
  t.binary = ElementRows<V>::binary;
  t.softmax = ElementRows<V>::softmax;
  t.row_sums = ElementRows<V>::row_sums;
  t.range = RowRange<V>::seen;
  t.quantize_pixels = Images<V>::quantize_pixels;
  t.windows = copy_windows;
  t.max_pool = Images<V>::max_pool;
  t.transpose = Images<V>::transpose;
  t.quantize_levels = Images<V>::quantize_levels;
  t.depthwise = Images<V>::depthwise;
  t.column_sizes = Columns<V>::sizes;
  t.quantize_columns = Columns<V>::quantize;
  t.weight_range = WeightRuns::range;
  t.quantize_weight = WeightRuns::quantize;
  t.round_groups = GroupRounding<V>::round;
  t.transpose_words = WordTiles<Words>::transpose;
  t.stream_lines = WordTiles<Words>::stream_lines;
  t.end_of_streams = Words::end_of_streams;
}

}  // namespace
}  // namespace octavo
