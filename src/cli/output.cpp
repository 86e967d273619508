#include "cli/output.h"

#include <c10/util/Exception.h>
#include <unistd.h>

#include <filesystem>

#include "bie/io/safetensors.h"
#include "bie/train/evaluation.h"
#include "cli/log.h"
#include "io/replacing_file.h"

namespace bie::cli {

void check_output(const char* option, const std::string& path, const std::string& other) {
  const auto whole = [](const std::string& p) { return std::filesystem::absolute(p).lexically_normal(); };
  std::error_code error;
  TORCH_CHECK_VALUE(!std::filesystem::is_directory(path, error), option, ": ", path, " is a folder, a file is wanted");
  const auto folder = std::filesystem::absolute(path).parent_path();
  TORCH_CHECK_VALUE(::access(folder.c_str(), W_OK) == 0, option, ": ", path, ": the folder ", folder.string(),
                    " cannot be written");
  TORCH_CHECK_VALUE(other.empty() || whole(path) != whole(other), option, ": ", path, " is the model's file");
}

void write_text(const std::string& kind, const std::string& path, const std::string& text) {
  io::ReplacingFile file(kind, path);
  file.write(text.data(), static_cast<std::int64_t>(text.size()));
  file.commit();
}

void save_logits(nn::Classifier& model, const at::Tensor& images, const std::string& path) {
  io::save_safetensors(path, {{"logits", train::logits(model, images)}}, {});
  log::info("logits saved to " + path);
}

}  // namespace bie::cli
