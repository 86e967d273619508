#include "cli/support/data_options.h"

#include <c10/util/Exception.h>

#include <optional>

namespace bie::cli {
namespace {

Json text_of_sign(char sign) { return sign == 0 ? Json() : Json(std::string(1, sign)); }

template <class T>
Json json_of(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

/// Nothing where there is none.
template <class T>
std::optional<T> entry(const Json& options, const std::string& path, const char* name) {
  const auto found = options.find(name);
  if (found == options.end() || found->is_null()) return std::nullopt;
  try {
    return found->get<T>();
  } catch (const Json::exception&) {
    TORCH_CHECK_VALUE(false, "run file ", path, ": the option \"", name, "\" of its data is ", found->dump());
  }
}

}  // namespace

Json data_options_json(const data::DataOptions& o) {
  const formats::TableOptions& table = o.table;
  const data::PictureOptions& pictures = o.pictures;
  return {{"label", table.label},
          {"task", table.regression ? "regression" : "classification"},
          {"test_data", exact_text(o.test_file)},
          {"test_share", table.test_share},
          {"validation", o.validation},
          {"validation_share", json_of(o.validation_share)},
          {"split", formats::name(table.split.kind)},
          {"split_column", table.split.column},
          {"split_seed", table.split.seed},
          {"drop", table.drop},
          {"keep", table.keep},
          {"id", table.id},
          {"missing", formats::name(table.missing)},
          {"header", json_of(table.header)},
          {"comment", text_of_sign(o.csv.comment)},
          {"decimal", text_of_sign(table.numbers.decimal)},
          {"thousands", text_of_sign(table.numbers.thousands)},
          {"missing_words", json_of(table.numbers.missing)},
          {"size", json_of(pictures.size)},
          {"fit", formats::name(pictures.fit.value_or(formats::Fit::crop))},
          {"nested", pictures.nested},
          {"skip_broken", pictures.skip_broken}};
}

data::DataOptions data_options_of(const Json& config, const std::string& path) {
  const Json options = config["data"].value("options", Json::object());
  TORCH_CHECK_VALUE(options.is_object(), "run file ", path, ": the options of its data are no object");
  data::DataOptions o;
  o.test_file = entry<std::string>(options, path, "test_data").value_or("");
  o.validation = entry<bool>(options, path, "validation").value_or(false);
  o.validation_share = entry<double>(options, path, "validation_share");
  o.table.header = entry<bool>(options, path, "header");
  const std::string comment = entry<std::string>(options, path, "comment").value_or("");
  if (!comment.empty()) o.csv.comment = comment.front();
  o.pictures.nested = entry<bool>(options, path, "nested").value_or(false);
  o.pictures.skip_broken = entry<bool>(options, path, "skip_broken").value_or(false);
  return o;
}

}  // namespace bie::cli
