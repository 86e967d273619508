// stdin, stdout and stderr as the process finds and leaves them.
#pragma once

namespace bie::cli {

/// Opens closed standard streams on /dev/null. Otherwise the next file that is opened would take their number, and
/// printed text would be written into it.
void open_missing_streams();

/// A std::runtime_error unless all that was printed on stdout has been taken: a disk may be full.
void check_results_written();

}  // namespace bie::cli
