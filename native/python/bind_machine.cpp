#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "contract/tables.h"
#include "python/bind.h"
#include "runtime/cpu.h"
#include "runtime/limits.h"
#include "runtime/parallel.h"

namespace octavo {

using namespace nb::literals;

void bind_machine(nb::module_& m) {
  m.def("cpu_features", &cpu_features);
  m.def("isas", &runnable_tables);
  m.def("isa", [] { return std::string(table().name); });
  m.def("has_bfloat16_products", [] { return table().bfloat16_instruction; });
  m.def("use_isa", &use_table, "name"_a);
  m.def("num_threads", &num_threads);
  m.def("set_num_threads", &set_num_threads, "threads"_a);
  m.def("thread_backend", [] { return std::string(thread_backend()); });
  m.def("peak_gops", &peak_gops, "isa"_a, "seconds"_a, "threads"_a, nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "read_gbps",
      [](Array<const std::uint8_t, 1> data, int threads) {
        const nb::gil_scoped_release release;
        return read_gbps(data.data(), data.shape(0), threads);
      },
      "data"_a, "threads"_a);
  m.def(
      "part_seconds",
      [](int part, std::size_t rows, std::size_t columns) { return part_seconds(static_cast<Part>(part), rows, columns); },
      "part"_a, "rows"_a, "columns"_a, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace octavo
