// Any bytes as a folder of a language model: config.json behind its length in two bytes, then a safetensors file.
#include <cstdio>
#include <filesystem>

#include "tests/fuzz/language_model.h"

namespace {

namespace fs = std::filesystem;

/// A folder of its own for each process.
struct Folder {
  Folder() { fs::create_directories(path); }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  void write(const char* name, const void* bytes, std::size_t size) const {
    std::FILE* const file = std::fopen((path / name).c_str(), "wb");
    bie::formats::fuzz::require(file != nullptr && std::fwrite(bytes, 1, size, file) == size);
    std::fclose(file);
  }
  const fs::path path = fs::temp_directory_path() / ("bie-folder-fuzz-" + std::to_string(::getpid()));
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  if (size < 2) return 0;
  const std::size_t length = std::min<std::size_t>(data[0] | data[1] << 8, size - 2);
  folder.write("config.json", data + 2, length);
  folder.write("model.safetensors", data + 2 + length, size - 2 - length);
  bie::llm::fuzz::run(folder.path.string(), size);
  return 0;
}
