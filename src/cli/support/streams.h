// stdin, stdout and stderr as the process finds and leaves them.
#pragma once

namespace bie::cli {

/// Those that are closed lead nowhere: else the next file that is opened would take their number, and what is printed
/// would be written into it.
void open_missing_streams();

/// A std::runtime_error unless all that was printed on stdout has been taken: a disk may be full.
void check_results_written();

}  // namespace bie::cli
