#include "llm/model_formats.h"

#include <initializer_list>
#include <variant>

#include "bie/formats/coded_rows.h"
#include "bie/formats/group_types.h"

namespace bie::llm {

using formats::GgufType;

const GgufType& type_as_held(ModelFormat format, const GgufType& type) {
  if (format != ModelFormat::gptq || !formats::is_group_type(type)) return type;
  return *formats::group_type_with(type, formats::GroupZero::whole);
}

std::string type_not_held(ModelFormat format, const GgufType& type) {
  const bool is_group = formats::is_group_type(type);
  if (format == ModelFormat::gguf)
    return is_group ? "a type that GGUF files have, as groups of codes go to a folder, -o FOLDER" : "";
  if (!is_group)
    return type.kind == GgufType::Kind::elements ? ""
                                                 : "groups of codes, as w4g64, or f32, f16 or bf16, which folders have";
  const bool has_whole = formats::group_type_with(type, formats::GroupZero::whole) != nullptr;
  return format == ModelFormat::gptq && !has_whole ? "2, 3, 4 or 8 bits, which GPTQ's folders have" : "";
}

std::vector<const GgufType*> candidates(ModelFormat format) {
  static const std::initializer_list<const char*> of_gguf = {"Q2_0", "Q2_K", "Q3_K", "Q4_0", "Q4_K", "Q4_1",
                                                             "Q5_0", "Q5_K", "Q5_1", "Q6_K", "Q8_0", "F16"};
  static const std::initializer_list<const char*> of_folders = {"W2G128", "W2G64",  "W2G32", "W3G128", "W3G64",
                                                                "W3G32",  "W4G128", "W4G64", "W4G32",  "W5G64",
                                                                "W5G32",  "W6G64",  "W8G64", "F16"};
  std::vector<const GgufType*> types;
  for (const char* name : format == ModelFormat::gguf ? of_gguf : of_folders) {
    const bool is_group = format != ModelFormat::gguf;
    const GgufType* const type =
        is_group && formats::group_type(name) != nullptr ? formats::group_type(name) : formats::gguf_type(name);
    if (type_not_held(format, *type).empty()) types.push_back(type);
  }
  return types;
}

FormatSizes::FormatSizes(const ModelFile& model, ModelFormat format) : format_(format) {
  const auto own = model.gguf.metadata.find("general.alignment");
  if (own != model.gguf.metadata.end())
    alignment_ = static_cast<std::int64_t>(std::get<std::uint64_t>(own->second.value));  // a number that was checked
}

std::int64_t FormatSizes::bytes_of(const GgufType& type, std::int64_t rows, std::int64_t columns) const {
  const std::int64_t own = rows * columns / type.weights * type.bytes;
  if (format_ == ModelFormat::gguf) return (own + alignment_ - 1) / alignment_ * alignment_;
  constexpr std::int64_t digits = 64;  // by which the header of a folder's file may grow
  if (!formats::is_group_type(type)) return own + digits;
  const bool is_gptq = format_ == ModelFormat::gptq;
  const auto words = [&](std::int64_t codes) { return 4 * formats::words_for(codes, type.bits); };
  const std::int64_t groups = columns / type.group, zeros = is_gptq ? words(rows) : 2 * rows;
  const std::int64_t index = is_gptq || columns * type.bits % 32 != 0 ? 4 * columns : 0;
  return words(columns) * rows + groups * (2 * rows + zeros) + index + digits;
}

}  // namespace bie::llm
