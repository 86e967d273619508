#include "ops/tuning.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

#include "bie/kernels/cuda/timing.h"
#include "ops/cuda_products.h"

namespace bie::ops {
namespace {

namespace cuda = kernels::cuda;

constexpr const char* header = "bie gemm tuning 1";
constexpr int key_fields = 8;
constexpr double budget_us = 100000;

/// GPU, architecture, driver, version, table, m, n, k to the row's name.
using Choices = std::map<std::string, std::string>;

std::string key_of(const cuda::GemmTable& table, const kernels::GemmShape& shape, const cuda::Gpu& gpu) {
  std::int64_t m = 1;
  while (m < shape.m) m *= 2;
  return c10::str(gpu.name, '\t', gpu.sm, '\t', gpu.driver, '\t', BIE_VERSION, '\t', table.back().name, '\t', m, '\t',
                  shape.n, '\t', shape.k);
}

std::filesystem::path file_path() {
  const auto from = [](const char* name) {
    const char* value = std::getenv(name);
    return std::filesystem::path(value == nullptr ? "" : value);
  };
  if (const auto dir = from("BIE_CACHE_DIR"); !dir.empty()) return dir / "gemm_tuning.tsv";
  if (const auto dir = from("XDG_CACHE_HOME"); !dir.empty()) return dir / "bie" / "gemm_tuning.tsv";
  if (const auto dir = from("HOME"); !dir.empty()) return dir / ".cache" / "bie" / "gemm_tuning.tsv";
  return {};
}

/// Nothing where there is no file; nothing and a warning where it is damaged.
Choices read_file(const std::filesystem::path& path) {
  Choices choices;
  std::ifstream file(path);
  std::string line;
  if (!file || !std::getline(file, line)) return choices;
  bool sound = line == header;
  while (sound && std::getline(file, line)) {
    const std::size_t last = line.rfind('\t');
    sound = std::count(line.begin(), line.end(), '\t') == key_fields && last + 1 < line.size();
    if (sound) choices[line.substr(0, last)] = line.substr(last + 1);
  }
  if (sound) return choices;
  TORCH_WARN_ONCE("bie: ", path.string(), " is damaged and ignored; kernels are chosen by shape");
  return {};
}

/// Adds one choice to the file. What cannot be written is found again by the next process.
void add_to_file(const std::filesystem::path& path, const std::string& key, const std::string& row) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  const std::string lock_path = path.string() + ".lock";
  const int lock = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock < 0) return;
  if (::flock(lock, LOCK_EX) == 0) {
    Choices all = read_file(path);
    all[key] = row;
    const std::string part = c10::str(path.string(), ".", ::getpid());
    std::ofstream file(part);
    file << header << '\n';
    for (const auto& [k, name] : all) file << k << '\t' << name << '\n';
    file.close();
    if (file)
      std::filesystem::rename(part, path, error);
    else
      std::filesystem::remove(part, error);
  }
  ::close(lock);
}

/// The choices of this process, read from the file once. Under its mutex.
struct Memory {
  std::mutex mutex;
  bool read = false;
  Choices choices;

  Choices& all() {
    if (!read) choices = read_file(file_path());
    read = true;
    return choices;
  }
};
Memory& memory() {
  static Memory it;
  return it;
}

/// Numbers of every kind, without touching a generator: zeros would run faster than data does.
at::Tensor filler(std::int64_t bytes, at::Device device) {
  return at::arange(bytes, at::TensorOptions(at::kInt).device(device))
      .mul_(2654435)
      .bitwise_right_shift_(7)
      .to(at::kByte);
}

}  // namespace

const cuda::GemmKernel* tuned_row(const cuda::GemmTable& table, const kernels::GemmShape& shape, const cuda::Gpu& gpu) {
  const std::lock_guard<std::mutex> lock(memory().mutex);
  const Choices& choices = memory().all();
  if (choices.empty()) return nullptr;
  const auto found = choices.find(key_of(table, shape, gpu));
  if (found == choices.end()) return nullptr;
  for (const auto& row : table)
    if (found->second == row.name && cuda::fits(row, shape, gpu)) return &row;
  return nullptr;
}

int tune(const char* op, const cuda::GemmTable& table, const kernels::GemmShape& shape, int device) {
  TORCH_CHECK_VALUE(shape.k <= table.max_k, op, ": k is ", shape.k, ", at most ", table.max_k, " is wanted");
  const at::Device where(c10::kCUDA, static_cast<c10::DeviceIndex>(device));
  const c10::DeviceGuard guard(where);
  const cuda::Gpu& gpu = gpu_of(op, device);
  const cuda::Queue queue = cuda_queue(where);
  const auto [m, n, k] = shape;
  const at::Tensor x = filler(2 * m * k, where).bitwise_and_(0x3b).view(at::kHalf);  // finite float16
  const at::Tensor panels = filler(n * table.panel_row(k), where);
  const at::Tensor workspace = at::empty({table.workspace(m, k)}, x.options().dtype(at::kByte));
  const at::Tensor y = at::empty({m, n}, x.options());
  struct Call {
    const cuda::GemmKernel* row;
    kernels::GemmShape shape;
    cuda::Rows x;
    cuda::Panels panels;
    cuda::GemmOutput y;
    void* workspace;
    cuda::Queue queue;
  } call{nullptr,
         shape,
         {x.const_data_ptr(), kernels::Dtype::f16, 2 * k, nullptr, {nullptr, 0.1f}, 1e-5f},
         {panels.const_data_ptr()},
         {y.mutable_data_ptr(), kernels::Dtype::f16, 2 * n, {nullptr, 1}, {nullptr, 1}},
         workspace.mutable_data_ptr(),
         queue};
  int best = -1;
  double best_us = 0;
  kernels::Status failed = kernels::Status::no_device;
  const int rows = static_cast<int>(
      std::count_if(table.begin(), table.end(), [&](const auto& row) { return cuda::fits(row, shape, gpu); }));
  for (int i = 0; i < table.count; ++i) {
    if (!cuda::fits(table.rows[i], shape, gpu)) continue;
    call.row = &table.rows[i];
    double us = 0;
    const kernels::Status status = cuda::median_time(
        [](void* context) {
          const Call& c = *static_cast<const Call*>(context);
          return c.row->run(c.shape, c.x, c.panels, c.y, c.workspace, c.queue);
        },
        &call, budget_us / rows, queue, &us);
    if (status != kernels::Status::ok) {  // a row that does not start is not chosen
      failed = status;
      continue;
    }
    if (best < 0 || us < best_us) {
      best = i;
      best_us = us;
    }
  }
  if (best < 0) check_status(op, failed);
  const std::string key = key_of(table, shape, gpu), name = table.rows[best].name;
  const std::lock_guard<std::mutex> lock(memory().mutex);
  memory().all()[key] = name;
  if (const auto path = file_path(); !path.empty()) add_to_file(path, key, name);
  return best;
}

}  // namespace bie::ops
