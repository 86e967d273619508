#include "data/csv_dataset.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "bie/formats/error.h"
#include "data/split.h"

namespace bie::data {
namespace {

constexpr const char* kind = "CSV file";

struct Part {
  at::Tensor images, labels;
};

/// The class that each label names; 1, 1.0 and 01 are the same one.
std::vector<std::int64_t> indices_of(const formats::CsvText& csv, const formats::TableRows& rows,
                                     const std::vector<std::string>& classes) {
  std::map<std::string, std::int64_t> by_text;
  std::map<double, std::int64_t> by_number;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    by_text.emplace(classes[i], static_cast<std::int64_t>(i));
    double number = 0;
    if (formats::csv_number(classes[i], &number)) by_number.emplace(number, static_cast<std::int64_t>(i));
  }
  std::vector<std::int64_t> indices;
  for (std::size_t row = 0; row < rows.labels.size(); ++row) {
    const std::string& label = rows.labels[row];
    double number = 0;
    if (const auto found = by_text.find(label); found != by_text.end()) {
      indices.push_back(found->second);
    } else if (formats::csv_number(label, &number) && by_number.count(number) > 0) {
      indices.push_back(by_number[number]);
    } else {
      formats::fail_file(kind, csv.path(), "row ", rows.places[row] + 1, " has the label ", formats::in_quotes(label),
                         ", which is not among the ", classes.size(), " classes of the model");
    }
  }
  return indices;
}

Part part_of(const formats::CsvText& csv, const formats::TableForm& form, const std::vector<std::string>& classes,
             const std::vector<std::string>& drop, std::vector<std::string>* notes) {
  const formats::TableRows rows = formats::read_table(csv, form, formats::Labels::wanted, drop);
  if (rows.dropped > 0)
    notes->push_back(formats::joined(csv.path(), ": ", rows.dropped, " rows with missing values are left out"));
  Part part;
  part.images = at::tensor(rows.values).view({rows.count, 1, 1, form.features()});
  if (form.regression) {
    std::vector<float> targets;
    for (const double number : formats::label_numbers(csv, rows))
      targets.push_back(static_cast<float>((number - form.mean) / form.scale));
    part.labels = at::tensor(targets).view({rows.count, 1});
  } else {
    part.labels = at::tensor(indices_of(csv, rows, classes));
  }
  return part;
}

/// Rows for training and rows for testing.
Dataset divided(const Part& all, const formats::TableForm& form, const std::string& path) {
  return split_for_testing(all.images, all.labels, form.test_share, formats::joined(kind, " ", path));
}

Dataset whole(const Part& train, const Part& test) {
  Dataset data;
  data.train_images = train.images;
  data.train_labels = train.labels;
  data.test_images = test.images;
  data.test_labels = test.labels;
  return data;
}

}  // namespace

Dataset load_csv_dataset(const std::string& path, const DataOptions& options) {
  const formats::CsvText csv = formats::load_csv(path, options.csv);
  std::vector<std::string> notes, classes = options.classes;
  Dataset data;
  formats::TableForm form;
  if (options.form) {
    form = *options.form;
    const Part all = part_of(csv, form, classes, options.table.drop, &notes);
    if (form.checksum != 0 && form.checksum == csv.checksum() && form.test_share > 0) {
      data = divided(all, form, path);
      notes.push_back(formats::joined(path, " is the file that the model was trained with: its test rows are counted"));
    } else {
      data = whole(all, all);
    }
  } else {
    formats::TableOptions table = options.table;
    if (!options.test_file.empty()) table.test_share = 0;
    formats::LearntTable learnt = formats::learn_table(csv, table);
    form = std::move(learnt.form);
    classes = std::move(learnt.classes);
    notes = std::move(learnt.notes);
    const Part all = part_of(csv, form, classes, {}, &notes);
    if (options.test_file.empty()) {
      data = divided(all, form, path);
    } else {
      const formats::CsvText test = formats::load_csv(options.test_file, options.csv);
      data = whole(all, part_of(test, form, classes, form.left_out, &notes));
    }
  }
  data.classes = form.regression ? 1 : static_cast<std::int64_t>(classes.size());
  data.name = path == "-" ? "table" : std::filesystem::path(path).stem().string();
  data.class_names = std::move(classes);
  data.table = std::move(form);
  data.notes = std::move(notes);
  return data;
}

}  // namespace bie::data
