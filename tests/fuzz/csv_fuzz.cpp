// Any bytes as a table: one sentence or rows of finite numbers, as many as the form says.
#include <cmath>

#include "bie/formats/csv.h"
#include "bie/formats/error.h"
#include "bie/formats/table.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace bie::formats;

void check(const TableRows& rows, const TableForm& form) {
  fuzz::require(rows.count > 0);
  fuzz::require(static_cast<std::int64_t>(rows.values.size()) == rows.count * form.features());
  fuzz::require(rows.labels.empty() || static_cast<std::int64_t>(rows.labels.size()) == rows.count);
  for (const float value : rows.values) fuzz::require(std::isfinite(value));
}

void learn(const CsvText& csv, Missing missing, bool regression) {
  try {
    TableOptions options;
    options.missing = missing;
    options.regression = regression;
    LearntTable learnt = learn_table(csv, options);
    fuzz::require(table_json(parse_table(table_json(learnt.form))) == table_json(learnt.form));
    const AskedTable asked{.header = learnt.form.named};
    const TableRows rows = read_table(csv, learnt.form, Labels::wanted, asked);
    check(rows, learnt.form);
    learn_scales(csv, rows.places, &learnt.form, &learnt.notes);
    fuzz::require(table_json(parse_table(table_json(learnt.form))) == table_json(learnt.form));
    check(read_table(csv, learnt.form, Labels::wanted, asked), learnt.form);
  } catch (const bie::formats::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string& path = fuzz::file_of(data, size);
  try {
    const CsvText csv = load_csv(path, {'#'});
    fuzz::require(csv.rows() > 0 && csv.columns() > 0);
    for (const Missing missing : {Missing::refuse, Missing::mean, Missing::drop})
      for (const bool regression : {false, true}) learn(csv, missing, regression);
    const TableForm plain = plain_form(2);
    check(read_table(csv, plain, Labels::optional), plain);
  } catch (const bie::formats::Error&) {
  }
  return 0;
}
