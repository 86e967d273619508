#include "data/csv_dataset.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <vector>

#include "bie/formats/csv.h"
#include "bie/formats/error.h"
#include "data/split.h"
#include "formats/json_text.h"

namespace bie::data {
namespace {

constexpr const char* kind = "CSV file";
constexpr std::int64_t most_classes = 10000;

/// Labels that are numbers; nothing where one of them is a name.
std::vector<std::int64_t> numbers_of(const std::vector<std::string>& labels) {
  std::vector<std::int64_t> numbers;
  for (const std::string& label : labels) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(label.data(), label.data() + label.size(), value);
    if (error != std::errc() || end != label.data() + label.size()) return {};
    numbers.push_back(value);
  }
  return numbers;
}

}  // namespace

Dataset load_csv_dataset(const std::string& path) {
  const formats::CsvTable table = formats::load_csv(path, formats::CsvLabels::wanted);
  const auto rows = static_cast<std::int64_t>(table.labels.size());
  std::vector<std::int64_t> labels = numbers_of(table.labels);
  std::vector<std::string> names;
  if (labels.empty()) {
    const std::set<std::string> different(table.labels.begin(), table.labels.end());
    names.assign(different.begin(), different.end());
    if (static_cast<std::int64_t>(names.size()) > most_classes)
      formats::fail_file(kind, path, "has ", names.size(), " different labels, at most ", most_classes, " are wanted");
    for (const std::string& name : names)
      if (!formats::is_utf8(name))
        formats::fail_file(kind, path, "the label ", formats::in_quotes(name), " is not UTF-8");
    for (const std::string& label : table.labels)
      labels.push_back(std::lower_bound(names.begin(), names.end(), label) - names.begin());
  }
  const auto [least, most] = std::minmax_element(labels.begin(), labels.end());
  if (*least < 0 || *most >= most_classes)
    formats::fail_file(kind, path, "has the label ", *least < 0 ? *least : *most, ", labels are 0 to ",
                       most_classes - 1, " or names");
  if (*least == *most)
    formats::fail_file(kind, path, "has one label, ", formats::in_quotes(table.labels.front()), ", two are wanted");
  const at::Tensor numbers = at::tensor(table.numbers).view({rows, 1, 1, table.columns});
  Dataset data = split_rows(numbers, at::tensor(labels), "CSV file " + path);
  data.classes = *most + 1;
  data.name = std::filesystem::path(path).stem().string();
  data.class_names = std::move(names);
  data.tabular = true;
  return data;
}

}  // namespace bie::data
