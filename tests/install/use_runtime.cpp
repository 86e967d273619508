// The installed bie::runtime from outside: what it says of bytes that are no net.
#include <cstdio>
#include <cstring>

#include "bie/runtime/net.h"

int main() {
  std::printf("runtime %s\n", bie_version());
  try {
    const bie::runtime::SharedNet net("no net", 6);
  } catch (const bie::runtime::NetError& error) {
    std::printf("%s\n", error.what());
    return error.status == BIE_BAD_FILE && std::strstr(error.what(), "no net of bie") != nullptr ? 0 : 1;
  }
  return 1;
}
