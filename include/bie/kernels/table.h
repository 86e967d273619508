// The kernels of one contract and the choice among them. Dispatch, tests, benches and `bie doctor` read the same table.
#pragma once

#include <cstdint>
#include <cstring>

#include "bie/kernels/isa.h"

namespace bie::kernels {

/// Kernels, best first; the last one is the reference and takes every shape on every machine.
template <class Kernel>
struct Table {
  const Kernel* best_first;
  int count;
  const Kernel* begin() const { return best_first; }
  const Kernel* end() const { return best_first + count; }
  const Kernel& back() const { return best_first[count - 1]; }
};

/// The table of an array of kernels that lives as long as the program.
template <class Kernel, int count>
Table<Kernel> table_of(const Kernel (&best_first)[count]) {
  return {best_first, count};
}

/// Whether one of these instruction sets runs the kernel and the kernel takes this shape.
template <class Kernel, class Shape>
bool fits(const Kernel& kernel, const Shape& shape, IsaSet isas) {
  return isas.has(kernel.isa) && (kernel.accepts == nullptr || kernel.accepts(shape));
}

/// The first kernel that fits. A pure function.
template <class Kernel, class Shape>
const Kernel& choose(const Table<Kernel>& table, const Shape& shape, IsaSet isas) {
  for (const Kernel& kernel : table)
    if (fits(kernel, shape, isas)) return kernel;
  return table.back();
}

/// The kernel of that name, or null.
template <class Kernel>
const Kernel* find(const Table<Kernel>& table, const char* name) {
  for (const Kernel& kernel : table)
    if (std::strcmp(kernel.name, name) == 0) return &kernel;
  return nullptr;
}

}  // namespace bie::kernels
