// Files that cannot be read while they are mapped: their disk failed, or another process cut them short.
#pragma once

namespace bie::cli {

/// From here on such a read ends the process with one sentence on stderr and the exit code of bad data. The system
/// tells it by a signal (SIGBUS), behind which nothing can go on.
void explain_failed_reads();

}  // namespace bie::cli
