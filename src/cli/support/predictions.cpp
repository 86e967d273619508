#include "cli/support/predictions.h"

#include <cstdio>

#include "cli/support/result.h"
#include "cli/support/text.h"

namespace bie::cli {
namespace {

/// "digits.npy[3]: seven 97.31 %, one 1.20 %"
std::string text_of(const Prediction& p) {
  std::string line = place_of(p.file, p.index, p.count);
  for (std::size_t i = 0; i < p.guesses.size(); ++i)
    line += format("%s%s %.2f %%", i == 0 ? ": " : ", ", p.guesses[i].name.c_str(), 100 * p.guesses[i].probability);
  return printable(line) + "\n";
}

Json json_of(const Prediction& p) {
  Json guesses = Json::array();
  for (const Guess& guess : p.guesses) guesses.push_back({{"class", guess.name}, {"probability", guess.probability}});
  return {{"file", p.file}, {"index", p.index}, {"guesses", guesses}};
}

}  // namespace

std::string place_of(const std::string& file, std::int64_t index, std::int64_t count) {
  return count == 1 ? file : format("%s[%lld]", file.c_str(), static_cast<long long>(index));
}

void print_predictions(const std::string& model, const std::vector<Prediction>& predictions, const Global& global) {
  if (!global.json) {
    for (const Prediction& prediction : predictions) std::printf("%s", text_of(prediction).c_str());
    return;
  }
  Json list = Json::array();
  for (const Prediction& prediction : predictions) list.push_back(json_of(prediction));
  print_json("predict", {{"model", model}, {"predictions", list}});
}

}  // namespace bie::cli
