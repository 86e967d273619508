#include "cli/support/streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>

namespace bie::cli {

void open_missing_streams() {
  // The lowest free number is taken, so they are filled in order. Results that are written to a closed stdout are lost,
  // which is an error (check_results_written): what stands in its place cannot be written.
  for (int fd = 0; fd <= 2; ++fd) {
    const int mode = fd == STDOUT_FILENO ? O_RDONLY : O_RDWR;
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF && ::open("/dev/null", mode) != fd) return;
  }
}

void check_results_written() {
  const bool failed = std::ferror(stdout) != 0;
  if (std::fflush(stdout) == 0 && !failed) return;
  throw std::runtime_error(std::string("the results cannot be written to stdout: ") + std::strerror(errno));
}

}  // namespace bie::cli
