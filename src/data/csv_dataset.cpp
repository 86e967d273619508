#include "data/csv_dataset.h"

#include <ATen/ops/tensor.h>

#include <filesystem>
#include <numeric>
#include <tuple>
#include <utility>

#include "bie/formats/error.h"

namespace bie::data {
namespace {

constexpr const char* kind = "CSV file";

using Indices = std::vector<std::int64_t>;

/// A table of one file with its labels.
struct Rows {
  formats::TableRows table;
  Indices classes;              ///< one per row; none of a regression
  std::vector<double> targets;  ///< of a regression, as they are learnt
};

Rows rows_of(const formats::CsvText& csv, const formats::TableForm& form, const std::vector<std::string>& classes,
             const formats::AskedTable& asked) {
  Rows rows{formats::read_table(csv, form, formats::Labels::wanted, asked), {}, {}};
  formats::TableForm own = form;
  own.numbers = asked.over(form.numbers);
  if (!form.regression)
    rows.classes = formats::label_classes(csv, own, rows.table, classes);
  else
    for (const double label : formats::label_numbers(csv, own, rows.table)) rows.targets.push_back(form.learnt(label));
  return rows;
}

void take_notes(const formats::CsvText& csv, const formats::TableRows& rows, std::vector<std::string>* notes) {
  if (rows.dropped > 0)
    notes->push_back(formats::joined(csv.path(), ": ", rows.dropped, " rows with missing values are left out"));
  notes->insert(notes->end(), rows.notes.begin(), rows.notes.end());
}

/// The rows of some indices as inputs and labels.
std::pair<at::Tensor, at::Tensor> part_of(const Rows& rows, const Indices& chosen, std::int64_t features) {
  std::vector<float> values;
  std::vector<float> targets;
  Indices classes;
  values.reserve(chosen.size() * static_cast<std::size_t>(features));
  for (const std::int64_t row : chosen) {
    const auto first = rows.table.values.begin() + static_cast<std::ptrdiff_t>(row * features);
    values.insert(values.end(), first, first + static_cast<std::ptrdiff_t>(features));
    const auto at = static_cast<std::size_t>(row);
    if (rows.targets.empty())
      classes.push_back(rows.classes[at]);
    else
      targets.push_back(static_cast<float>(rows.targets[at]));
  }
  const auto count = static_cast<std::int64_t>(chosen.size());
  return {at::tensor(values).view({count, 1, 1, features}),
          rows.targets.empty() ? at::tensor(classes) : at::tensor(targets).view({count, 1})};
}

Indices all_of(const Rows& rows) {
  Indices all(static_cast<std::size_t>(rows.table.count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

/// Which rows of a training file are for what.
struct Parts {
  Indices train, test, validation;
};

Parts parts_of(const formats::TableForm& form, const Rows& rows, const std::string& path, const DataOptions& options) {
  const std::string what = formats::joined(kind, " ", path);
  const bool by_column = !form.split.column.empty();
  if (by_column && rows.table.keys.empty())
    throw formats::Error(what + ": has no column " + formats::in_quotes(form.split.column) + ", which splits its rows");
  Parts parts;
  parts.train = all_of(rows);
  const auto take = [&](double share, const char* purpose) {
    formats::SplitRows split =
        formats::split_table(form, share, parts.train, rows.classes, rows.table.keys, what, purpose);
    parts.train = std::move(split.train);
    return std::move(split.other);
  };
  if (options.folds > 0) {
    formats::SplitRows split =
        formats::fold_table(form, options.folds, options.fold, parts.train, rows.classes, rows.table.keys, what);
    parts.train = std::move(split.train);
    parts.test = std::move(split.other);
  } else if (options.test_file.empty()) {
    parts.test = take(form.test_share, "testing");
  }
  if (options.validation || options.validation_share)
    parts.validation = take(options.validation_share.value_or(usual_validation_share), "validation");
  return parts;
}

Dataset dataset_of(const Rows& rows, const Parts& parts, const Rows& test_rows, const Indices& test,
                   std::int64_t features) {
  Dataset data;
  std::tie(data.train_images, data.train_labels) = part_of(rows, parts.train, features);
  std::tie(data.test_images, data.test_labels) = part_of(test_rows, test, features);
  if (!parts.validation.empty())
    std::tie(data.validation_images, data.validation_labels) = part_of(rows, parts.validation, features);
  return data;
}

/// The rows of options.test_file are for testing, all of them.
Dataset with_test_file(const Rows& rows, const Parts& parts, const formats::TableForm& form,
                       const std::vector<std::string>& classes, const DataOptions& options,
                       std::vector<std::string>* notes) {
  const formats::CsvText csv = formats::load_csv(options.test_file, options.csv);
  const Rows test = rows_of(csv, form, classes, {.drop = form.left_out, .header = options.table.header});
  take_notes(csv, test.table, notes);
  return dataset_of(rows, parts, test, all_of(test), form.features());
}

/// A table that a model is asked about.
Dataset asked_table(const formats::CsvText& csv, const formats::TableForm& form, const DataOptions& options,
                    std::vector<std::string>* notes) {
  const Rows rows = rows_of(csv, form, options.classes, options.asked);
  take_notes(csv, rows.table, notes);
  if (!options.test_file.empty())
    return with_test_file(rows, parts_of(form, rows, csv.path(), options), form, options.classes, options, notes);
  Parts parts;
  if (form.checksum != 0 && form.checksum == csv.checksum() && form.test_share > 0) {
    DataOptions own = options;
    own.test_file.clear();
    own.validation = false;
    own.validation_share.reset();
    parts = parts_of(form, rows, csv.path(), own);
    notes->push_back(
        formats::joined(csv.path(), " is the file that the model was trained with: its test rows are counted"));
  } else {
    parts.train = parts.test = all_of(rows);
  }
  Dataset data = dataset_of(rows, parts, rows, parts.test, form.features());
  data.test_is_training = form.checksum != 0 && form.checksum == csv.checksum() && form.test_share == 0;
  return data;
}

/// A table that a model is to be trained with: the scales are those of the training rows.
Dataset training_table(const formats::CsvText& csv, formats::TableForm& form, const std::vector<std::string>& classes,
                       const DataOptions& options, std::vector<std::string>* notes) {
  const formats::AskedTable as_learnt{.header = form.named};
  const Rows unscaled = rows_of(csv, form, classes, as_learnt);
  const Parts parts = parts_of(form, unscaled, csv.path(), options);
  Indices places;
  for (const std::int64_t row : parts.train) places.push_back(unscaled.table.places[static_cast<std::size_t>(row)]);
  formats::learn_scales(csv, places, &form, notes);
  const Rows rows = rows_of(csv, form, classes, as_learnt);
  take_notes(csv, rows.table, notes);
  if (options.test_file.empty()) return dataset_of(rows, parts, rows, parts.test, form.features());
  return with_test_file(rows, parts, form, classes, options, notes);
}

}  // namespace

Dataset load_csv_dataset(const std::string& path, const DataOptions& options) {
  const formats::CsvText csv = formats::load_csv(path, options.csv);
  std::vector<std::string> notes, classes = options.classes;
  Dataset data;
  formats::TableForm form;
  if (options.form) {
    form = *options.form;
    data = asked_table(csv, form, options, &notes);
  } else {
    formats::TableOptions table = options.table;
    if (!options.test_file.empty()) table.test_share = 0;
    formats::LearntTable learnt = formats::learn_table(csv, table);
    form = std::move(learnt.form);
    classes = std::move(learnt.classes);
    notes = std::move(learnt.notes);
    data = training_table(csv, form, classes, options, &notes);
  }
  data.classes = form.regression ? 1 : static_cast<std::int64_t>(classes.size());
  data.name = path == "-" ? "table" : std::filesystem::path(path).stem().string();
  data.class_names = std::move(classes);
  data.table = std::move(form);
  data.notes = std::move(notes);
  return data;
}

}  // namespace bie::data
