#include "cli/support/threads.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "bie/train/threads.h"

namespace bie::cli {
namespace {

int most = 0;  // where the command chooses; 0 where the user did

/// Whether the variable is a positive whole number, or a list that begins with one. OpenMP passes over anything else.
bool says_threads(const char* variable) {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return false;
  const std::string_view all(text), first = all.substr(0, all.find(','));
  int count = 0;
  const auto [end, error] = std::from_chars(first.data(), first.data() + first.size(), count);
  return error == std::errc() && end == first.data() + first.size() && count > 0;
}

}  // namespace

void start_threads(int asked) {
  if (asked > 0) return at::set_num_threads(asked);
  if (says_threads("OMP_NUM_THREADS") || says_threads("MKL_NUM_THREADS")) return;
  most = std::min(at::get_num_threads(), train::usable_cpus());
  at::set_num_threads(most);
}

void use_threads_for(const models::ModelConfig& config, std::int64_t images) {
  if (most > 0) at::set_num_threads(train::threads_for(config, images, most));
}

}  // namespace bie::cli
