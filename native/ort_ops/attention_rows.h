// What becomes of rows of an attention that no key counts for, after the kernel.
#pragma once

#include "layers/attention.h"

namespace octavo::ort {

// Rows whose mask hides every key become the mean of all values, as where a large negative number takes the place of scores.
void mean_where_hidden(const AttentionInputs& in);

// Rows whose weights are not numbers become 0. NaN that comes of V stays.
void zero_where_not_a_number(const AttentionInputs& in);

// Rows whose bias is -inf for every key become 0.
void zero_where_bias_hides(const AttentionInputs& in);

}  // namespace octavo::ort
