// bie import in the half that has torch: the other one does it.
#include <stdexcept>

#include "cli/nets/import.h"

namespace bie::cli {

void import_net(const ImportArguments&, const Global&) {
  throw std::runtime_error(
      "bie import needs the half of bie without torch: cmake --preset runtime, or cmake --install");
}

}  // namespace bie::cli
