// What octavo.torch tells of PyTorch: whether a call is a plain one, that nobody records, traces or changes.
#pragma once

#include "python/bind.h"

namespace octavo {

// torch.Tensor; null where octavo.torch is not loaded.
PyObject* tensor_type();

// Whether it is one, or a parameter, of that very type.
bool is_tensor(PyObject* value);

// No dispatch mode, tracing, functorch, autocast, forward-mode differentiation or global hook; nn.Module's own call.
// False with an error too.
bool plain_process();

// As octavo.torch.ops.direct of this tensor, but for what `plain_process` tells.
bool plain_values(PyObject* tensor);

}  // namespace octavo
