#include "cli/support/output.h"

#include <c10/util/Exception.h>

#include <filesystem>
#include <system_error>

#include "bie/data/dataset.h"
#include "bie/data/tensor_files.h"
#include "bie/formats/replacing_file.h"
#include "cli/support/log.h"

namespace bie::cli {

void check_output(const char* option, const std::string& path, const std::string& other, const char* what) {
  namespace fs = std::filesystem;
  const formats::Destination destination = formats::destination_of(std::string(option) + ":", path);
  if (other.empty() || destination.kind == formats::Destination::Kind::stream) return;
  const auto whole = [](const std::string& p) { return fs::absolute(formats::behind_links(p)).lexically_normal(); };
  std::error_code ignored;
  TORCH_CHECK_VALUE(whole(path) != whole(other) && !fs::equivalent(path, other, ignored), option, ": ", path, " is ",
                    what);
}

void check_output_against_data(const char* option, const std::string& path, const std::string& data) {
  TORCH_CHECK_VALUE(!data::reads_file(data, path), option, ": ", path, " is a file of the data ", data);
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
