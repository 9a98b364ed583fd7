// What becomes of rows of an attention that no key counts for, after the kernel.
#pragma once

#include "layers/attention.h"

namespace octavo::ort {

// The score of a key that mask, causality or window hide is `fill`, a finite number far below others, in the place of the
// product, and with `replaces` in that of the bias too. Rows that have no other key, or only such as the bias puts as low,
// are computed anew with these scores.
struct Fill {
  float value;
  bool replaces;
};
void fill_where_hidden(const AttentionInputs& in, Fill fill);

// Rows whose weights are not numbers become 0. NaN that comes of V stays.
void zero_where_not_a_number(const AttentionInputs& in);

// Rows of which mask, causality, window and a bias of -inf or the lowest number hide every key become 0.
void zero_where_hidden(const AttentionInputs& in);

}  // namespace octavo::ort
