// The table entries that are one template for every instruction set. Include it inside an anonymous
// namespace, after a vector_*.h, activations.h and rows.h.

#include "isa/attention_panel.h"
#include "isa/cells.h"
#include "isa/quantize_columns.h"
#include "isa/embedding_rows.h"
#include "isa/float_product.h"
#include "isa/half.h"
#include "isa/half_product.h"
#include "isa/transpose_words.h"
#include "isa/convolution.h"
#include "isa/norm_rows.h"
#include "isa/quantize_weight_runs.h"

template <class V>
void fill_shared(KernelTable& t) {
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
  t.attention = AttentionPanels<V>::attention;
  t.norm_rows = Norms<V>::rows;
  fill_images<V>(t);
  t.column_sizes = Columns<V>::sizes;
  t.quantize_columns = Columns<V>::quantize;
  t.weight_range = WeightRuns::range;
  t.quantize_weight = WeightRuns::quantize;
  t.turn_words = turn_words;
  t.stream_lines = stream_lines;
  t.end_of_streams = end_of_streams;
}
