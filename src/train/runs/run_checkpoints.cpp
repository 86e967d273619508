#include "train/runs/run_checkpoints.h"

#include <ATen/ops/full.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "bie/data/checksum.h"
#include "bie/layers/state_dict.h"
#include "bie/models/model_file.h"
#include "bie/ops/weight_rules.h"
#include "bie/train/checkpoint.h"

namespace bie::train {
namespace {

/// The entry with the checksum of the data; older checkpoints have none.
constexpr const char* contents = "data_crc32";

/// The settings that must be the same for a run to go on.
std::string run_json(const models::Classifier& model, const data::Dataset& data, const TrainOptions& o,
                     const Recipe& r) {
  nlohmann::json layers = nlohmann::json::array();
  for (const auto& layer : model.quant_layers()) {
    std::ostringstream text;  // form of the weight, gradients and compat
    text << *layer << ", step floor " << layer->step_size_guard().floor;
    layers.push_back(text.str());
  }
  models::ModelConfig config = model.config();
  config.table.reset();  // a part of the data, whose sum is below
  nlohmann::json json = {{"model", nlohmann::json::parse(models::config_json(config))},
                         {"layers", layers},
                         {"data", c10::str(data.name, " ", data.train_images.sizes(), ", labels of CRC-32 ",
                                           data::checksum({{"labels", data.train_labels}}, ""))},
                         {"epochs", o.epochs},
                         {"batch", o.batch.value_or(default_batch(data.train_images.size(0)))},
                         {"augment", name(o.augment)},
                         {"optimizer", name(o.optimizer)},
                         {"lr", r.lr},
                         {"weight_decay", r.weight_decay},
                         {"integer_lr", r.integer_lr},
                         {"integer_memory", r.integer_memory},
                         {"schedule", optim::name(r.schedule.kind)},
                         {"warmup", r.schedule.warmup},
                         {"freeze_binary", o.freeze_binary},
                         {"wide_gradients", o.wide_gradients},
                         {"renew_scale_every", o.renew_scale_every},
                         {"moments", o.moments == optim::MomentType::float32 ? "float32" : "bfloat16"},
                         {"precision", o.bfloat16 ? "bfloat16" : "float32"},
                         {"seed", o.seed}};
  if (o.keep_best) json["keep_best"] = true;
  if (o.balanced_classes) json["class_weights"] = "balanced";
  if (data.validation_images.defined())
    json["validation"] = c10::str(data.validation_images.sizes(), ", labels of CRC-32 ",
                                  data::checksum({{"labels", data.validation_labels}}, ""));
  if (!o.checkpoints.empty())  // nobody else reads it, and a large data set takes a while
    json[contents] = data::checksum(
        {{"test_images", data.test_images}, {"test_labels", data.test_labels}, {"train_images", data.train_images}},
        "");
  // The data's name is that of a file, whose bytes may be anything.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// The first of these entries in which two JSON objects differ.
std::string difference(const nlohmann::json& ours, const nlohmann::json& theirs) {
  for (const auto& [key, value] : ours.items())
    if (!theirs.contains(key) || theirs[key] != value)
      return c10::str(key, " is ", value.dump(), ", the checkpoint's is ",
                      theirs.contains(key) ? theirs[key].dump() : "missing");
  return {};
}

/// The first entry in which two runs differ; first of all the model's and the optimizer, which others follow from.
std::string run_difference(const nlohmann::json& ours, const nlohmann::json& theirs) {
  const nlohmann::json optimizer = {{"optimizer", ours["optimizer"]}};
  std::string differs = difference(ours["model"], theirs.value("model", nlohmann::json()));
  if (differs.empty()) differs = difference(optimizer, theirs);
  return differs.empty() ? difference(ours, theirs) : differs;
}

}  // namespace

/// A diverged run must not take the place of its good checkpoints, nor end as if it had been trained.
void check_finite(const layers::StateDict& tensors, std::int64_t epoch) {
  for (const auto& [name, tensor] : tensors)
    TORCH_CHECK(!at::isFloatingType(tensor.scalar_type()) || ops::all_finite(tensor), "training diverged in epoch ",
                epoch + 1, ": ", name, " is not finite");
}

RunCheckpoints::RunCheckpoints(models::Classifier& model, Optimizers& optimizers, const data::Dataset& data,
                               const TrainOptions& options, const Recipe& recipe)
    : model_(model), optimizers_(optimizers), options_(options), json_(run_json(model, data, options, recipe)) {}

void RunCheckpoints::save(const Past& past, std::int64_t epoch) const {
  Checkpoint checkpoint{past.step, json_, {}, past.history, past.part, past.seconds};
  for (const auto& [name, tensor] : layers::state_dict(model_, /*packed=*/false))
    checkpoint.tensors["model." + name] = tensor;
  for (const auto& [name, tensor] : past.best) checkpoint.tensors["best." + name] = tensor;
  for (const auto& [name, tensor] : optimizers_.state()) checkpoint.tensors["optimizer." + name] = tensor;
  for (const auto& [name, layer] : layers::layers_of<layers::ActivationQuantizer>(model_))
    checkpoint.tensors["guard." + name] = at::full({}, layer->guarded_scale());
  check_finite(checkpoint.tensors, epoch);
  for (auto& [name, tensor] : checkpoint.tensors) tensor = tensor.cpu();
  save_checkpoint(options_.checkpoints, checkpoint);
}

RunCheckpoints::Past RunCheckpoints::resume(const std::function<void(const std::string&)>& note) const {
  if (!options_.resume) {
    TORCH_CHECK_VALUE(options_.checkpoints.empty() || !has_checkpoints(options_.checkpoints), options_.checkpoints,
                      " holds the checkpoints of a run; go on from them with resume, or name another folder");
    return {};
  }
  const std::optional<Checkpoint> checkpoint = newest_checkpoint(options_.checkpoints, note);
  if (!checkpoint) {
    if (note) note(options_.checkpoints + " holds no checkpoint yet: training starts from the beginning");
    return {};
  }
  nlohmann::json theirs = nlohmann::json::parse(checkpoint->run);
  // As this build would write it: an older one may have named sizes that the model does not have.
  if (theirs.contains("model"))
    theirs["model"] = nlohmann::json::parse(models::config_json(models::parse_config(theirs["model"].dump())));
  nlohmann::json ours = nlohmann::json::parse(json_);
  if (!theirs.contains(contents)) ours.erase(contents);
  if (!theirs.contains("precision")) theirs["precision"] = "float32";  // of a run that had no other
  if (const std::int64_t before = theirs.value("epochs", std::int64_t{0}); before > 0 && before < options_.epochs) {
    if (note)
      note(c10::str("the run was of ", before, " epochs and goes on to ", options_.epochs,
                    ", at the rates of such a run"));
    theirs["epochs"] = options_.epochs;
  }
  const std::string differs = run_difference(ours, theirs);
  TORCH_CHECK_VALUE(differs.empty(), options_.checkpoints, ": a checkpoint of another run: ", differs);
  const char* const prefixes[] = {"model.", "optimizer.", "guard.", "best."};
  layers::StateDict parts[std::size(prefixes)];
  for (const auto& [name, tensor] : checkpoint->tensors)
    for (std::size_t i = 0; i < std::size(prefixes); ++i)
      if (name.starts_with(prefixes[i])) parts[i][name.substr(std::strlen(prefixes[i]))] = tensor;
  layers::load_state_dict(model_, parts[0]);
  model_.to(options_.device);  // the optimizer's moments follow
  optimizers_.load_state(parts[1]);
  for (const auto& [name, layer] : layers::layers_of<layers::ActivationQuantizer>(model_))
    if (const auto found = parts[2].find(name); found != parts[2].end())
      layer->set_guarded_scale(found->second.item<float>());
  if (note) note(c10::str("resumed after step ", checkpoint->step));
  return {checkpoint->step, checkpoint->history, checkpoint->part, checkpoint->seconds, std::move(parts[3])};
}

}  // namespace bie::train
