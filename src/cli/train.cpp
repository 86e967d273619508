// bie train: one model on one data set.
#include <ATen/Context.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>

#include "bie/nn/layer_table.h"
#include "bie/nn/model_file.h"
#include "bie/train/device.h"
#include "cli/commands.h"
#include "cli/log.h"
#include "cli/output.h"
#include "cli/progress_bar.h"
#include "cli/session.h"

namespace bie::cli {

Session train_with_bar(const std::string& label, nn::ModelConfig config, const io::Dataset& data,
                       const train::TrainOptions& options, const std::function<void(nn::Classifier&)>& configure,
                       const std::function<void(nn::Classifier&)>& started) {
  const auto image = data.train_images.sizes().slice(1);
  config.image = {image[0], image[1], image[2]};
  config.classes = data.classes;
  at::manual_seed(options.seed);
  Session session{nn::make_model(config), {}};
  if (configure) configure(*session.model);
  ProgressBar bar(label);
  const auto show = [&](const train::Progress& p) {
    char note[64];
    std::snprintf(note, sizeof note, "epoch %lld/%lld  loss %.4f", static_cast<long long>(p.epoch),
                  static_cast<long long>(p.epochs), p.loss);
    bar.show(static_cast<double>(p.step) / static_cast<double>(p.steps), note);
  };
  const auto start = [&] {
    if (started) started(*session.model);
  };
  session.result = train::fit(*session.model, data, options, {show, log::info, start});
  return session;
}

CLI::Option* add_seed(CLI::App& command, std::uint64_t& seed, const char* what) {
  return command.add_option("--seed", seed, what)
      ->check(CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max(), "NONNEGATIVE"))
      ->capture_default_str();
}

void add_data(CLI::App& command, std::string& data) {
  command
      .add_option("--data", data,
                  "digits (built in), mnist:DIR (a folder of IDX files, .gz or not) or cifar10:DIR (of binary files)")
      ->capture_default_str();
}

void add_device(CLI::App& command, std::string& device) {
  command.add_option("--device", device, "cpu, cuda or cuda:N")->capture_default_str();
}

void add_train(CLI::App& app) {
  struct Arguments {
    std::string data = "digits", out, logits, device = "cpu";
    std::string weights = "usual", optimizer = "diodemix", gradients, compat = "none", schedule, augment = "none";
    nn::ModelConfig config;
    train::TrainOptions options;
    nn::StepSizeGuard guard;
    bool no_norm = false, bfloat16_moments = false, training_form = false, layers = false;
  };
  auto arguments = std::make_shared<Arguments>();
  auto& a = *arguments;
  auto& o = a.options;
  CLI::App* command = app.add_subcommand("train", "Train a classifier and save it packed");
  add_data(*command, a.data);
  add_device(*command, a.device);
  command->add_option("-o,--out", a.out, "where to save the model (safetensors)");
  command->add_flag("--training-form", a.training_form, "save the weights as they train, not packed");
  command->add_option("--logits", a.logits, "where to save the test images' logits (safetensors)");

  const char* group = "Model";
  command->add_option("--arch", a.config.arch, "mlp, lenet, vgg-small or resnet20")
      ->capture_default_str()
      ->group(group);
  command->add_option("--bits", a.config.bits, "32 (float), 8, 4 or 1, weights and activations of the inner layers")
      ->capture_default_str()
      ->group(group);
  command
      ->add_option("--linear-bits", a.config.linear_bits,
                   "of the inner linear of lenet, vgg-small and resnet20; 0: as --bits, the latter two without one")
      ->capture_default_str()
      ->group(group);
  command->add_option("--hidden", a.config.hidden, "width of the inner layers")->capture_default_str()->group(group);
  command->add_option("--depth", a.config.depth, "number of inner layers (mlp)")->capture_default_str()->group(group);
  command->add_flag("--no-norm", a.no_norm, "no BatchNorm, output biases instead")->group(group);
  command
      ->add_flag("--quantise-first", a.config.quantise_first, "quantise the first layer too: all but the last one then")
      ->group(group);
  command
      ->add_option("--weights", a.weights,
                   "how quantised weights train: float, int8, or usual (int8 at 1 bit, else float)")
      ->capture_default_str()
      ->group(group);
  command->add_option("--gradients", a.gradients, "exact, or reference (BITorch Engine's, the default with --compat)")
      ->check(CLI::IsMember({"exact", "reference"}))
      ->group(group);
  command->add_option("--compat", a.compat, "none, or bie-0.2.6: values as BITorch Engine computes them")
      ->capture_default_str()
      ->group(group);
  command->add_flag("--layers", a.layers, "print the layers, their widths and sizes first")->group(group);

  group = "Recipe (what is not given has a default for the bit width)";
  command->add_option("--epochs", o.epochs, "passes over the training images")->capture_default_str()->group(group);
  command->add_option("--batch", o.batch, "images a step")->capture_default_str()->group(group);
  command
      ->add_option("--augment", a.augment, "none, or crop-flip: training images shifted by up to 4 pixels and mirrored")
      ->capture_default_str()
      ->group(group);
  command->add_option("--optimizer", a.optimizer, "of the float parameters: diodemix, adam or sgd")
      ->capture_default_str()
      ->group(group);
  command->add_option("--lr", o.lr, "rate of the float parameters")->group(group);
  command->add_option("--weight-decay", o.weight_decay, "of the float weights")->group(group);
  command->add_option("--integer-lr", o.integer_lr, "rate of the int8 weights (DiodeMix)")->group(group);
  command
      ->add_option("--integer-memory", o.integer_memory,
                   "share of the steps over which DiodeMix remembers the votes on a 1-bit weight")
      ->group(group);
  command->add_option("--schedule", a.schedule, "of all rates: cosine, linear or constant")->group(group);
  command->add_option("--warmup", o.warmup, "share of the steps over which the rates rise")->group(group);
  command
      ->add_option("--step-floor", a.guard.floor, "least step size of an activation, as a share of its first; 0: none")
      ->capture_default_str()
      ->group(group);
  command
      ->add_option("--renew-scale-every", o.renew_scale_every,
                   "steps between new scales of 4-bit weights and of int8 codes; 0: never")
      ->capture_default_str()
      ->group(group);
  command->add_flag("--wide-gradients", o.wide_gradients, "float32 gradients for int8 weights instead of int8")
      ->group(group);
  command->add_flag("--bfloat16-moments", a.bfloat16_moments, "the optimizer's moments in half the memory")
      ->group(group);
  command->add_flag("--freeze-binary", o.freeze_binary, "leave the 1-bit weights as they start, for comparison")
      ->group(group);
  add_seed(*command, o.seed, "start of every random number")->group(group);

  group = "Checkpoints";
  command->add_option("--checkpoints", o.checkpoints, "folder for training checkpoints")->group(group);
  command->add_option("--checkpoint-every", o.checkpoint_every, "steps between them; 0: once an epoch")
      ->capture_default_str()
      ->group(group);
  command->add_flag("--resume", o.resume, "go on from the newest good checkpoint in the folder")->group(group);

  command->footer("Example: bie train --data mnist:data/mnist --bits 4 --epochs 20 -o mnist4.safetensors");
  command->callback([arguments] {
    Arguments& args = *arguments;
    if (!args.out.empty()) check_output("--out", args.out);
    if (!args.logits.empty()) check_output("--logits", args.logits, args.out);
    args.options.device = train::device_of(args.device);
    args.options.augment = train::augmentation_of(args.augment);
    args.config.norm = !args.no_norm;
    args.config.weights = nn::weight_form_of(args.weights);
    args.options.optimizer = train::optimizer_of(args.optimizer);
    if (!args.schedule.empty()) args.options.schedule = optim::schedule_of(args.schedule);
    if (args.bfloat16_moments) args.options.moments = optim::MomentType::bfloat16;
    const nn::Compat compat = nn::compat_of(args.compat);
    TORCH_CHECK_VALUE(compat == nn::Compat::none || args.gradients != "exact", "--gradients exact: --compat ",
                      args.compat, " computes the reference's gradients");
    const io::Dataset data = io::load_dataset(args.data);
    log::info(c10::str(data.name, ": ", data.train_images.size(0), " training and ", data.test_images.size(0),
                       " test images"));
    const auto configure = [&](nn::Classifier& model) {
      nn::set_grad_mode(model, args.gradients == "reference" ? ops::GradMode::reference : ops::GradMode::exact);
      nn::set_compat(model, compat);
      nn::set_step_size_guard(model, args.guard);
    };
    const auto started = [&](nn::Classifier& model) {
      if (args.layers) std::printf("%s\n", nn::layer_table(model).c_str());
    };
    const Session session = train_with_bar("train", args.config, data, args.options, configure, started);
    std::printf("test accuracy %.2f %%", 100 * session.result.test_accuracy);
    if (!std::isnan(session.result.flipped))
      std::printf(", binary weights flipped %.1f %%", 100 * session.result.flipped);
    std::printf(", %.1f s\n", session.result.seconds);
    log::info(c10::str("the optimizer held ", session.result.optimizer_bytes, " bytes for ",
                       session.model->weight_count(), " weights"));
    if (!args.out.empty()) {
      nn::save_model(*session.model, args.out, args.training_form ? nn::SavedForm::training : nn::SavedForm::packed);
      log::info("saved to " + args.out);
    }
    if (!args.logits.empty()) save_logits(*session.model, data.test_images, args.logits);
  });
}

}  // namespace bie::cli
