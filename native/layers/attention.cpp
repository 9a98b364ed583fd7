#include "layers/attention.h"

#include <algorithm>

#include "layers/attention_call.h"

namespace octavo {
namespace {

// How many threads earn their start (some microseconds).
int useful_threads(int threads, double macs) {
  return std::max(1, std::min(threads, static_cast<int>(std::min(1e6, macs / 4e4 / 7.0))));
}

void clear(const AttentionCall& call) {
  const AttentionInputs& in = call.in;
  for (std::size_t item = 0; item < in.batch; ++item)
    for (std::size_t query = 0; query < in.queries; ++query)
      for (std::size_t head = 0; head < in.heads; ++head) {
        float* out = call.out(item, {query, head});
        std::fill(out, out + in.value_depth, 0.0f);
      }
}

}  // namespace

void attention(const AttentionInputs& in, int threads) {
  const std::size_t rows = in.batch * in.queries;
  if (rows == 0 || in.heads == 0 || in.value_depth == 0) return;
  const AttentionCall call(in);
  if (in.keys == 0) return clear(call);
  const double macs = static_cast<double>(rows * in.heads * in.keys) * static_cast<double>(in.depth + in.value_depth);
  threads = useful_threads(threads, macs);
  if (call.columns <= kFewColumns) attention_rows(call, threads);
  else attention_panels(call, threads);
}

}  // namespace octavo
