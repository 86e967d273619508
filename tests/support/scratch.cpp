#include "tests/support/scratch.h"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>

namespace bie::test {

Scratch::Scratch() {
  std::string name = (std::filesystem::temp_directory_path() / "bie-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::filesystem::filesystem_error("mkdtemp", name, std::error_code());
  folder_ = name;
}

Scratch::~Scratch() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

int Scratch::count() const {
  return static_cast<int>(
      std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator()));
}

void write_file(const std::string& path, const std::string& bytes) {
  // Truncating a file that was just written makes ext4 flush it; a fresh one costs nothing.
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string read_file(const std::string& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

}  // namespace bie::test
