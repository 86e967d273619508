#include "llm/run_name.h"

#include <filesystem>
#include <set>
#include <system_error>

#include "bie/formats/error.h"
#include "formats/crc32c.h"

namespace bie::llm {

using formats::joined;

std::string run_name(const ModelFile& model, const Quantized& planned, const QuantizeOptions& options) {
  std::string facts;
  const auto add_file = [&](const std::filesystem::path& path) {
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    const auto when = std::filesystem::last_write_time(path, error).time_since_epoch().count();
    facts += joined(path.string(), " ", size, " ", when, "; ");
  };
  std::set<std::filesystem::path> files;
  std::error_code error;
  if (model.is_folder())
    for (std::filesystem::directory_iterator at(model.path(), error), last; !error && at != last; at.increment(error))
      files.insert(at->path());
  else
    files.insert(model.path());
  for (const std::filesystem::path& file : files) add_file(file);
  for (const auto& [name, type] : planned.plan) facts += name + " " + type + "; ";
  const auto add_numbers = [&](const auto& list) {
    facts += joined(formats::crc32c({reinterpret_cast<const char*>(list.data()), sizeof(list[0]) * list.size()}), "; ");
  };
  if (options.gptq != nullptr) {
    facts += joined("window ", options.gptq->window, "; ");
    add_numbers(options.gptq->tokens);
  } else if (options.importance != nullptr) {
    for (const auto& [name, columns] : *options.importance) {
      facts += name + " ";
      add_numbers(columns);
    }
  }
  const char* const method = options.gptq != nullptr         ? "gptq 2 "
                             : options.importance != nullptr ? "search 1 "
                                                             : "nearest 1 ";
  return joined(method, formats::crc32c(facts), " ", facts.size());
}

}  // namespace bie::llm
