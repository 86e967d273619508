// Any bytes as a table: one sentence or rows of numbers.
#include <cmath>

#include "bie/formats/csv.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace bie::formats;

void read(const std::string& path, CsvLabels labels, std::int64_t columns) {
  try {
    const CsvTable table = load_csv(path, labels, columns);
    fuzz::require(!table.numbers.empty() && table.columns > 0);
    const auto numbers = static_cast<std::int64_t>(table.numbers.size()), rows = numbers / table.columns;
    fuzz::require(rows * table.columns == numbers);
    fuzz::require(table.labels.empty() || static_cast<std::int64_t>(table.labels.size()) == rows);
    for (const float value : table.numbers) fuzz::require(std::isfinite(value));
  } catch (const bie::formats::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string& path = fuzz::file_of(data, size);
  read(path, CsvLabels::wanted, 0);
  read(path, CsvLabels::leftover, 2);
  return 0;
}
