#!/bin/sh
# Unpacks Debian 11's C library (glibc 2.31) and C++ library (of GCC 10) into a folder, so that a wheel that is linked with
# them runs on systems older than this one. What this compiler's C++ library has beyond them comes from a few members of its
# archive and stays hidden in what is linked. A second run does nothing.
#
# Usage: old_glibc.sh FOLDER; then link with -BFOLDER/link -LFOLDER/link FOLDER/link/compat.o -Wl,--exclude-libs,libstdc++_newer.a
set -eu
folder=$1
[ ! -e "$folder/complete" ] || exit 0
archive=$(c++ -print-file-name=libstdc++.a)
if [ ! -e "$archive" ]; then
  echo "old_glibc: this compiler has no libstdc++.a, whose members would be linked: $(c++ --version | head -n 1)" >&2
  exit 1
fi
sh "$(dirname "$0")/debian_packages.sh" "$folder" amd64 bullseye libc6 libc6-dev libstdc++6 libgcc-s1
folder=$(cd "$folder" && pwd)
mkdir "$folder/link"

run=$folder/lib/x86_64-linux-gnu
dev=$folder/usr/lib/x86_64-linux-gnu
cd "$folder/link"
cp "$dev/crt1.o" "$dev/Scrt1.o" "$dev/crti.o" "$dev/crtn.o" .
others="$run/libpthread.so.0 $run/libdl.so.2 $run/librt.so.1 $run/ld-linux-x86-64.so.2"
echo "GROUP ( $run/libc.so.6 $dev/libc_nonshared.a AS_NEEDED ( $others ) )" >libc.so
echo "GROUP ( $run/libm.so.6 AS_NEEDED ( $run/libmvec.so.1 ) )" >libm.so
for name in pthread.so.0 dl.so.2 rt.so.1; do echo "INPUT ( $run/lib$name )" >"lib${name%%.*}.so"; done
echo "GROUP ( $dev/libstdc++.so.6 $folder/link/libstdc++_newer.a )" >libstdc++.so
echo "GROUP ( -lgcc $run/libgcc_s.so.1 )" >libgcc_s.so
# Templates of string streams, numbers to and from text, pointers to exceptions and what all these throw: none of them
# holds a state. Where the archive has none of them the program below does not link.
mkdir members
(cd members && ar t "$archive" | grep -E '^((lt[0-9]-)?sstream-inst|floating_(from|to)_chars|functexcept|snprintf_lite|eh_ptr)\.o$' |
  xargs -r ar x "$archive" && ar rc ../libstdc++_newer.a ./*.o) >try.log 2>&1 || true
rm -r members
# Two symbols that this compiler's code and these members want. __libc_single_threaded (glibc 2.32) says whether a process has
# one thread, when counters of shared pointers need no atomic operation: 0 is always right.
cat >compat.cpp <<'END'
#include <cstdlib>
#pragma GCC visibility push(hidden)
extern "C" {
char __libc_single_threaded = 0;
}
namespace __cxxabiv1 {
[[noreturn]] void __terminate(void (*handler)()) noexcept {
  handler();
  std::abort();
}
}  // namespace __cxxabiv1
END
c++ -fPIC -c -o compat.o compat.cpp
# A program of all of it, linked and run.
cat >try.cpp <<'END'
#include <charconv>
#include <exception>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

int main() {
  std::ostringstream text;
  double number = 0;
  const std::string digits = "1.5";
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  text << std::filesystem::path("a") / "b" << number;
  std::thread([&] { text << std::vector<int>(3).size(); }).join();
  try {
    std::rethrow_exception(std::make_exception_ptr(std::runtime_error(text.str())));
  } catch (const std::exception& error) {
    return std::string(error.what()) == "\"a/b\"1.53" ? 0 : 1;
  }
}
END
if ! { c++ -std=c++20 -Wl,-z,defs try.cpp compat.o -B. -L. -Wl,--exclude-libs,libstdc++_newer.a -o try && ./try; } >>try.log 2>&1; then
  echo "old_glibc: programs of this compiler want more than Debian 11 has (the linker's words are in $PWD/try.log): $(c++ --version | head -n 1)" >&2
  exit 1
fi
rm try.cpp try try.log
: >"$folder/complete"
