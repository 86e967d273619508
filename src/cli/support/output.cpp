#include "cli/support/output.h"

#include <c10/util/Exception.h>

#include <filesystem>
#include <system_error>

#include "bie/data/tensor_files.h"
#include "bie/formats/replacing_file.h"
#include "cli/support/log.h"

namespace bie::cli {

void reads_data(CommandFiles& files, const std::string& spec, const data::DataOptions& options) {
  files.reads(data::files_of(spec), "a file of the data " + spec);
  files.reads(options.test_file, "the file of --test-data");
  files.reads_folder(data::picture_folder(spec), "the data " + spec);
}

Json bytes_of(const std::string& path) {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  return error ? Json() : Json(bytes);
}

void write_text(const std::string& kind, const std::string& path, const std::string& text) {
  formats::ReplacingFile file(kind, path);
  file.write(text.data(), static_cast<std::int64_t>(text.size()));
  file.commit();
}

void save_logits(const at::Tensor& logits, const std::string& path) {
  data::save_safetensors(path, {{"logits", logits}}, {});
  log::info("logits saved to " + path);
}

}  // namespace bie::cli
