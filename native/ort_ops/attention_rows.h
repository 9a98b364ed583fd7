// What becomes of rows of an attention that no key counts for, after the kernel.
#pragma once

#include "layers/attention.h"

namespace octavo::ort {

// Rows of which mask, causality, window and a bias of -inf hide every key become the mean of the values whose bias is not
// -inf, as where a large negative number takes the place of scores before the bias is added; NaN where there are none.
void mean_where_hidden(const AttentionInputs& in);

// Rows whose weights are not numbers become 0. NaN that comes of V stays.
void zero_where_not_a_number(const AttentionInputs& in);

// Rows of which mask, causality, window and a bias of -inf or the lowest number hide every key become 0.
void zero_where_hidden(const AttentionInputs& in);

}  // namespace octavo::ort
