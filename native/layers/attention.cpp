#include "layers/attention.h"

#include <algorithm>

#include "layers/attention_call.h"
#include "layers/work.h"
#include "runtime/parallel.h"

namespace octavo {
namespace {

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
  const double macs = static_cast<double>(rows * in.heads) * static_cast<double>(in.keys) * static_cast<double>(in.depth + in.value_depth);
  threads = earned_threads(threads, macs / rate::kFloatMacs);
  if (call.columns <= kFewColumns) attention_rows(call, threads);
  else attention_panels(call, threads);
}

}  // namespace octavo
