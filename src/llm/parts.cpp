#include "llm/parts.h"

#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "bie/formats/error.h"
#include "bie/formats/gguf_writer.h"
#include "bie/formats/group_types.h"

namespace bie::llm {
namespace {

constexpr const char* run_key = "bie.run";

/// Whether a file is a part, of whatever run.
bool is_part(const std::string& path) {
  try {
    return formats::load_gguf(path).metadata.contains(run_key);
  } catch (const formats::Error&) {
    return false;
  }
}

/// A matrix as its part has it: of a type that GGUF has no number for the bytes of each row.
struct Stored {
  const formats::GgufType* type;
  std::vector<std::int64_t> sizes;

  Stored(const formats::GgufType& of, const std::vector<std::int64_t>& whole) : type(&of), sizes(whole) {
    if (!formats::is_group_type(of)) return;
    type = formats::gguf_type("I8");
    sizes.back() = whole.back() / of.weights * of.bytes;
  }
};

}  // namespace

Parts::Parts(const std::string& out, std::string run) : folder_(out + ".parts"), run_(std::move(run)) {}

std::optional<formats::GgufTensor> Parts::find(const std::string& name, const formats::GgufType& type,
                                               const std::vector<std::int64_t>& sizes) const {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file_of(name), error)) return std::nullopt;
  try {
    const formats::GgufFile file = formats::load_gguf(file_of(name));
    const auto run = file.metadata.find(run_key);
    const formats::GgufTensor* const tensor = file.find(name);
    const Stored stored(type, sizes);
    if (run == file.metadata.end() || tensor == nullptr || tensor->type != stored.type || tensor->sizes != stored.sizes)
      return std::nullopt;
    const auto* const text = std::get_if<std::string>(&run->second.value);
    if (text == nullptr || *text != run_) return std::nullopt;
    return formats::GgufTensor{name, sizes, &type, tensor->bytes};
  } catch (const formats::Error&) {
    return std::nullopt;  // it is made anew
  }
}

formats::GgufTensor Parts::put(const std::string& name, const formats::GgufType& type,
                               const std::vector<std::int64_t>& sizes, const std::vector<std::uint8_t>& blocks) const {
  std::error_code error;
  std::filesystem::create_directory(folder_, error);
  if (error) throw formats::Error(formats::joined(folder_, ": ", error.message()));
  const Stored stored(type, sizes);
  formats::save_gguf(file_of(name), {{run_key, {formats::GgufValueType::string, run_}}},
                     {{name, stored.sizes, stored.type, blocks.data(), static_cast<std::int64_t>(blocks.size())}});
  return get(name, type, sizes);
}

formats::GgufTensor Parts::get(const std::string& name, const formats::GgufType& type,
                               const std::vector<std::int64_t>& sizes) const {
  const std::optional<formats::GgufTensor> found = find(name, type, sizes);
  if (!found)
    throw formats::Error(file_of(name) + ": expected a finished matrix, got none; another run has taken it away");
  return *found;
}

void Parts::remove() const {
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder_, error), last; !error && at != last; at.increment(error))
    if (at->path().extension() == ".gguf" && is_part(at->path().string())) {
      std::error_code ignored;
      std::filesystem::remove(at->path(), ignored);
    }
  std::filesystem::remove(folder_, error);
}

}  // namespace bie::llm
