// For the main source of a program: worker threads that soon sleep where they wait for work.
#pragma once

#if defined(__linux__) && defined(__GLIBC__)
#include <alloca.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

namespace bie::detail {

/// Starts the program again with GOMP_SPINCOUNT=1000, unless that or OMP_WAIT_POLICY is set. Goes on as it is where
/// the program cannot be started: setuid, or by a loader that was called by its name.
inline void restart_with_passive_threads(int /*argc*/, char** argv, char** environment) {
  std::size_t count = 0;
  for (; environment[count] != nullptr; ++count)
    for (const char* name : {"OMP_WAIT_POLICY=", "GOMP_SPINCOUNT="})
      if (std::strncmp(environment[count], name, std::strlen(name)) == 0) return;
  if (getauxval(AT_SECURE) != 0 || getauxval(AT_BASE) == 0) return;
  static char policy[] = "GOMP_SPINCOUNT=1000";
  auto** const more = static_cast<char**>(alloca((count + 2) * sizeof(char*)));
  std::memcpy(more, environment, count * sizeof(char*));
  more[count] = policy;
  more[count + 1] = nullptr;
  execve("/proc/self/exe", argv, more);
}

}  // namespace bie::detail

/// Once, at namespace scope of a program that links torch: its OpenMP threads spin for microseconds at barriers, then
/// sleep. libgomp's spin for milliseconds by default, which on a machine with other work to do makes training tens of
/// times slower. libgomp reads its settings when it is loaded, so the program starts itself again with
/// GOMP_SPINCOUNT=1000 before a library has been initialised, which takes a few milliseconds. A setting of the user's
/// (OMP_WAIT_POLICY, GOMP_SPINCOUNT) stays. Does nothing on systems other than Linux with glibc.
/// docs/measured/threads.md has the measurements.
#define BIE_PASSIVE_THREADS                                                                                        \
  __attribute__((section(".preinit_array"), used)) static void (*const bie_passive_threads)(int, char**, char**) = \
      bie::detail::restart_with_passive_threads
#else
#define BIE_PASSIVE_THREADS static_assert(true)
#endif
