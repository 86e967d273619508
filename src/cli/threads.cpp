#include "cli/threads.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdlib>

#include "bie/train/threads.h"

namespace bie::cli {
namespace {

int most = 0;  // where the command chooses; 0 where the user did

}  // namespace

void start_threads(int asked) {
  if (asked > 0) return at::set_num_threads(asked);
  if (std::getenv("OMP_NUM_THREADS") != nullptr || std::getenv("MKL_NUM_THREADS") != nullptr) return;
  most = std::min(at::get_num_threads(), train::usable_cpus());
  at::set_num_threads(most);
}

void use_threads_for(const nn::ModelConfig& config, std::int64_t images) {
  if (most > 0) at::set_num_threads(train::threads_for(config, images, most));
}

}  // namespace bie::cli
