// bie bench: how long saved models take for an image.
#include <ATen/Parallel.h>
#include <ATen/ops/rand.h>

#include <CLI/Config.hpp>
#include <CLI/Error.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "bie/models/model_file.h"
#include "bie/train/device.h"
#include "bie/train/evaluation.h"
#include "bie/train/profile.h"
#include "cli/commands/commands.h"
#include "cli/nets/net_files.h"
#include "cli/support/result.h"
#include "cli/support/session.h"
#include "cli/support/text.h"

namespace bie::cli {
namespace {

struct Arguments {
  std::vector<std::string> models;
  std::vector<std::int64_t> batches{1, 64, 256};
  int repeats = 20;
  std::string device = "cpu";
  bool profile = false;
};

/// The models in turn, the median of five medians of each: the machine's other work disturbs all alike.
std::vector<double> seconds_an_image(const std::vector<std::shared_ptr<models::Classifier>>& models, std::int64_t batch,
                                     int repeats) {
  constexpr std::size_t rounds = 5;
  std::vector<std::vector<double>> times(models.size());
  for (std::size_t round = 0; round < rounds; ++round)
    for (std::size_t i = 0; i < models.size(); ++i) {
      const auto& image = models[i]->config().image;
      const at::Tensor images = at::rand({1, image[0], image[1], image[2]});
      times[i].push_back(train::latency(*models[i], images, batch, repeats) / static_cast<double>(batch));
    }
  std::vector<double> medians;
  for (auto& list : times) {
    std::sort(list.begin(), list.end());
    medians.push_back(list[rounds / 2]);
  }
  return medians;
}

/// Where the time of a pass goes.
Json profile_of(models::Classifier& model, std::int64_t batch, int repeats) {
  const auto& image = model.config().image;
  Json list = Json::array();
  for (const train::OperatorTime& time :
       train::operator_times(model, at::rand({1, image[0], image[1], image[2]}), batch, repeats))
    list.push_back({{"operator", time.name}, {"calls", time.calls}, {"seconds", time.seconds}});
  return list;
}

void print_profile(const Json& model) {
  for (const Json& time : model["times"]) {
    double whole = 0;
    for (const Json& part : time["profile"]) whole += part["seconds"].get<double>();
    std::printf("\n%s, batch %lld: %.1f us a pass\n", printable(model["model"].get<std::string>()).c_str(),
                time["batch"].get<long long>(), 1e6 * whole);
    std::printf("%9s %6s %6s  %s\n", "us", "share", "calls", "operator");
    for (const Json& part : time["profile"]) {
      const double seconds = part["seconds"].get<double>();
      constexpr double worth_a_line = 0.01;
      if (seconds < worth_a_line * whole) continue;
      std::printf("%9.1f %5.0f%% %6.0f  %s\n", 1e6 * seconds, 100 * seconds / whole, part["calls"].get<double>(),
                  part["operator"].get<std::string>().c_str());
    }
  }
}

void bench(const Arguments& a, const Global& global) {
  if (a.profile && a.device != "cpu")
    throw CLI::ValidationError("--profile", "is for the CPU; of a GPU it would time the launches");
  const auto nets = std::count_if(a.models.begin(), a.models.end(), is_net);
  if (nets == static_cast<std::ptrdiff_t>(a.models.size())) return bench_nets(a.models, a.batches, a.repeats, global);
  if (nets > 0) throw CLI::ValidationError("models", "are exported nets and others: the two are timed apart");
  const c10::Device device = train::device_of(a.device);
  std::vector<std::shared_ptr<models::Classifier>> models;
  for (const std::string& path : a.models) {
    models.push_back(models::load_classifier(path));
    models.back()->to(device);
  }
  Json list = Json::array();
  for (std::size_t i = 0; i < models.size(); ++i)
    list.push_back({{"model", a.models[i]},
                    {"bits", models[i]->config().bits},
                    {"file_bytes", std::filesystem::file_size(a.models[i])},
                    {"times", Json::array()}});
  for (const std::int64_t batch : a.batches) {
    const std::vector<double> seconds = seconds_an_image(models, batch, a.repeats);
    for (std::size_t i = 0; i < models.size(); ++i) {
      list[i]["times"].push_back({{"batch", batch}, {"seconds_an_image", seconds[i]}});
      if (a.profile) list[i]["times"].back()["profile"] = profile_of(*models[i], batch, a.repeats);
    }
  }
  if (global.json) {
    print_json("bench", {{"device", device.str()}, {"threads", at::get_num_threads()}, {"models", list}});
    return;
  }
  std::printf("%6s %9s %9s %9s %7s  %s\n", "batch", "us/image", "images/s", "bytes", "speed", "model");
  for (std::size_t b = 0; b < a.batches.size(); ++b)
    for (const Json& model : list) {
      const double seconds = model["times"][b]["seconds_an_image"].get<double>();
      const double first = list[0]["times"][b]["seconds_an_image"].get<double>();
      std::printf("%6lld %9.2f %9.0f %9lld %6.2fx  %s\n", static_cast<long long>(a.batches[b]), 1e6 * seconds,
                  1 / seconds, model["file_bytes"].get<long long>(), first / seconds,
                  printable(model["model"].get<std::string>()).c_str());
    }
  if (a.profile)
    for (const Json& model : list) print_profile(model);
}

}  // namespace

void add_bench(CLI::App& app, const Global& global) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("bench", "How long saved models take for an image");
  command->add_option("models", arguments->models, "files written by bie train or bie quantize, or all by bie export")
      ->required();
  command->add_option("--batch", arguments->batches, "images in a call; several are separated by commas")
      ->check(CLI::Range(1, 1 << 16))
      ->delimiter(',')
      ->default_str("1,64,256");
  command->add_option("--repeats", arguments->repeats, "calls in each of five rounds")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->add_flag("--profile", arguments->profile, "where the time goes, by operator (CPU)");
  add_device(*command, arguments->device);
  command->footer(
      "The speed is in times of the first model's. The kernels of a GPU are timed by bie tune.\n"
      "Examples:\n"
      "  bie --threads 1 bench float.safetensors eight.safetensors four.safetensors\n"
      "  bie --threads 1 bench mnist1.safetensors --batch 1,256 --profile\n"
      "  bie bench mnist4.safetensors --batch 1 --device cuda --json");
  command->callback([arguments, &global] { bench(*arguments, global); });
}

}  // namespace bie::cli
