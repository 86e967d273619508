// Which kernel of a table was found fastest: measured once, remembered for later processes.
//
// The file gemm_tuning.tsv lies in $BIE_CACHE_DIR, else $XDG_CACHE_HOME/bie, else $HOME/.cache/bie. A line is a
// processor's name, its architecture and driver, this library's version, table, m, n, k and the kernel's name. It is
// replaced in one step under a lock, so two writers lose nothing; a damaged file is ignored with one warning.
#pragma once

#include <cstdint>
#include <string>

namespace bie::ops {

/// Key of a tuned choice. On a GPU m is a power of two, and a choice serves all m up to it. On a CPU m is "*", because
/// a weight is arranged once for every m.
struct TuningKey {
  std::string processor, architecture, driver;
  const char* table;
  std::string m;
  std::int64_t n, k;
};

/// Whether any choice is known to this process, which reads the file once; false makes asking for one needless.
bool any_remembered();

/// The row's name, or "".
std::string remembered_kernel(const TuningKey& key);

/// Remembers the kernel for this process and later ones; warns once if the file cannot be written.
void remember_kernel(const TuningKey& key, const std::string& row);

}  // namespace bie::ops
