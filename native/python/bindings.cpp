#include "python/bind.h"

NB_MODULE(_native, m) {
  m.doc() = "Octavo's C++ core. Use it through octavo.core.kernels, which checks and documents.";
  // A layer that PyTorch or a test runner still holds when Python ends is no fault to report on its user's terminal.
  nanobind::set_leak_warnings(false);
  octavo::bind_weights(m);
  octavo::bind_round_groups(m);
  octavo::bind_machine(m);
  octavo::bind_linear(m);
  octavo::bind_rnn(m);
  octavo::bind_conv(m);
  octavo::bind_half(m);
  octavo::bind_embedding(m);
  octavo::bind_attention(m);
  octavo::bind_sources(m);
  octavo::bind_torch(m);
  octavo::bind_guard(m);
  octavo::bind_program(m);
}
