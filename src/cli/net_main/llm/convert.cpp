// The work of bie convert.
#include "bie/llm/convert.h"

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "cli/llm/language.h"
#include "cli/support/command_files.h"
#include "cli/support/progress_bar.h"
#include "cli/support/result.h"
#include "cli/support/text.h"

namespace bie::cli {
namespace {

const formats::GgufType* type_of(std::string name) {
  if (name.empty()) return nullptr;
  for (char& c : name) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return formats::gguf_type(name);
}

}  // namespace

void convert_folder(const ConvertArguments& a, const Global& global) {
  CommandFiles files;
  std::error_code error;
  for (std::filesystem::directory_iterator at(a.folder, error), last; !error && at != last; at.increment(error))
    files.reads(at->path().string(), "a file of the model");
  files.writes("--out", a.out);
  const llm::ModelFile folder = llm::open_model(a.folder);
  ProgressBar bar("convert");
  llm::ConvertOptions options;
  options.type = type_of(a.type);
  if (!global.quiet)
    options.progress = [&](std::size_t done, std::size_t all) {
      bar.show(static_cast<double>(done) / static_cast<double>(all), format("tensor %zu of %zu", done + 1, all));
    };
  const llm::Converted made = llm::convert(folder, a.out, options);
  bar.clear();
  if (global.json) {
    print_json("convert", {{"file", a.out},
                           {"tensors", made.tensors},
                           {"bytes", made.bytes},
                           {"tensors_of_type", made.tensors_of_type},
                           {"opened", made.opened}});
    return;
  }
  std::string types;
  for (const auto& [type, count] : made.tensors_of_type)
    types += format("%s%lld %s", types.empty() ? "" : ", ", static_cast<long long>(count), type.c_str());
  std::printf("%s: %lld tensors (%s), %.1f MB\n", a.out.c_str(), static_cast<long long>(made.tensors), types.c_str(),
              static_cast<double>(made.bytes) / 1e6);
  if (made.opened > 0)
    std::printf("%lld linears of codes became floats, as no type of GGUF holds their codes\n",
                static_cast<long long>(made.opened));
}

}  // namespace bie::cli
