#include "formats/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "bie/formats/error.h"

namespace bie::formats {

int open_regular(const std::string& kind, const std::string& path) {
  // O_NONBLOCK: a named pipe is refused below instead of waited for.
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd < 0) fail_file(kind, path, "cannot be opened: ", std::strerror(errno));
  struct stat facts {};
  if (::fstat(fd, &facts) == 0 && S_ISREG(facts.st_mode)) return fd;
  ::close(fd);
  fail_file(kind, path, "is not a regular file");
}

}  // namespace bie::formats
