// BIE_LOG=dispatch: which kernel of a CPU table an operator runs, and why none of those before it.
#pragma once

#include <c10/util/StringUtil.h>

#include <string>

#include "bie/kernels/conv2d.h"
#include "bie/kernels/gemm.h"

namespace bie::ops {

/// Whether BIE_LOG is a list (of commas) that has "dispatch"; read once.
bool logs_dispatch();

/// Writes the line to stderr unless this process has written it before.
void log_once(const std::string& line);

std::string text_of(const kernels::GemmShape& shape);
std::string text_of(const kernels::Conv2dShape& shape);

/// `how` says who chose: the table, a kernel_id or the panels.
template <class Kernel, class Shape>
void log_dispatch(const char* op, const kernels::Table<Kernel>& table, const Kernel& chosen, const Shape& shape,
                  const char* how) {
  if (!logs_dispatch()) return;
  std::string line = c10::str("bie: ", op, " ", text_of(shape), ": ", chosen.name, " (", how, ")");
  for (const Kernel& kernel : table) {
    if (&kernel == &chosen) break;
    const char* reason = kernels::why_not(kernel.isa);
    if (reason == nullptr && kernel.accepts != nullptr && !kernel.accepts(shape)) reason = "does not take this shape";
    line += c10::str("; ", kernel.name, ": ", reason == nullptr ? "not asked for" : reason);
  }
  log_once(line);
}

}  // namespace bie::ops
