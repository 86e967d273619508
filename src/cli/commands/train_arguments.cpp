#include "cli/commands/train_arguments.h"

#include <CLI/Config.hpp>
#include <CLI/Error.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "bie/formats/error.h"
#include "bie/models/architecture.h"
#include "bie/models/net_description.h"
#include "bie/train/device.h"
#include "bie/train/run_folder.h"
#include "bie/train/warm_start.h"
#include "cli/commands/commands.h"
#include "cli/support/help_text.h"
#include "cli/support/log.h"
#include "cli/support/output.h"
#include "cli/support/session.h"
#include "formats/folder_lock.h"

namespace bie::cli {
namespace {

/// Options of one group, each with its default shown.
class Group {
 public:
  Group(CLI::App& command, std::string title) : command_(command), title_(std::move(title)) {}
  template <class T>
  CLI::Option* add(const char* name, T& value, const std::string& what) {
    return command_.add_option(name, value, what)->capture_default_str()->group(title_);
  }
  /// Without a default of its own.
  template <class T>
  CLI::Option* add_unset(const char* name, T& value, const std::string& what) {
    return command_.add_option(name, value, what)->group(title_);
  }
  CLI::Option* flag(const char* name, bool& value, const std::string& what) {
    return command_.add_flag(name, value, what)->group(title_);
  }

  const std::string& title() const { return title_; }

 private:
  CLI::App& command_;
  std::string title_;
};

std::vector<std::string> architecture_words() {
  std::vector<std::string> words;
  for (const models::Architecture* architecture : models::architectures())
    if (!architecture->described) words.emplace_back(architecture->name);
  return words;
}

/// "mlp 3 inner linears, vgg-small 2 convolutions a stage": the sizes of the architectures that have one.
std::string own_sizes(std::int64_t models::Architecture::*size) {
  std::string all;
  for (const models::Architecture* architecture : models::architectures()) {
    if (architecture->*size == 0) continue;
    all += (all.empty() ? "" : ", ") + std::string(architecture->name) + " " + std::to_string(architecture->*size);
    if (size == &models::Architecture::depth) all += std::string(" ") + architecture->depth_counts;
  }
  return all;
}

void add_model_options(CLI::App& command, TrainArguments& a) {
  Group group(command, "Model");
  auto& c = a.config;
  auto& w = a.words;
  CLI::Option* arch = takes_one_of(group.add("--arch", c.arch, models::architecture_names()), architecture_words());
  w.arch = arch;
  CLI::Option* const net =
      takes_file(group.add_unset("--net", a.net, "a file that describes the layers (JSON), in place of --arch"))
          ->excludes(arch);
  const std::vector<std::string> widths{"32", "8", "4", "1"};
  w.bits = takes_one_of(
      group.add("--bits", c.bits, "32 (float), 8, 4 or 1, weights and activations of the inner layers"), widths);
  takes_one_of(group.add_unset("--first", w.first, "bits of the first layer"), widths);
  takes_one_of(group.add_unset("--last", w.last, "bits of the last layer"), widths);
  group.add_unset("--bits-of", w.bits_of, "NAME=BITS of one layer; --layers shows the names; may be repeated")
      ->type_size(1)
      ->allow_extra_args(false);
  group.add("--linear-bits", c.linear_bits,
            "of the inner linear of lenet, vgg-small and resnet20; 0: as --bits, the latter two without one");
  CLI::Option* const hidden = group.add_unset(
      "--hidden", w.hidden,
      "outputs of the inner linears (default: 1024; of a table 64, 128 at 1 bit, 256 of more than 3 classes)");
  CLI::Option* const width =
      group.add_unset("--width", c.width,
                      "channels of the first stage; the next ones have 2 and 4 times as many (default: " +
                          own_sizes(&models::Architecture::width) + "). Of an mlp the same as --hidden");
  CLI::Option* const depth = group.add_unset(
      "--depth", c.depth,
      "how many layers (default: " + own_sizes(&models::Architecture::depth) + "); 5 make resnet20 a ResNet-32");
  CLI::Option* const no_norm = group.flag("--no-norm", w.no_norm, "no BatchNorm, output biases instead");
  CLI::Option* const from = takes_file(group.add_unset(
      "--from", a.from, "a trained float model (--bits 32) whose net and weights this one starts with"));
  for (CLI::Option* size : {arch, net, hidden, width, depth, no_norm}) from->excludes(size);
  group.flag("--quantise-first", c.quantise_first, "quantise the first layer too: all but the last one then");
  takes_one_of(group.add("--weights", w.weights,
                         "how quantised weights train: float, int8, or usual (int8 at 1 bit, else float)"),
               {"usual", "float", "int8"});
  group.add_unset("--gradients", w.gradients, "exact, or reference (BITorch Engine's, the default with --compat)")
      ->check(CLI::IsMember({"exact", "reference"}));
  takes_one_of(group.add("--compat", w.compat, "none, or bie-0.2.6: values as BITorch Engine computes them"),
               {"none", "bie-0.2.6"});
  group.flag("--layers", a.layers, "print the layers, their widths and sizes first");
}

void add_recipe_options(CLI::App& command, TrainArguments& a) {
  Group group(command, "Recipe (what is not given has a default for the bit width)");
  auto& o = a.options;
  auto& w = a.words;
  w.epochs = group.add("--epochs", o.epochs, "passes over the training images (of a table: by its rows)");
  group.add_unset("--batch", o.batch, "images a step (default: 64, fewer of a data set of less than 384)");
  w.patience = group.add("--patience", o.patience,
                         "end after so many epochs without a better score of the validation samples, or of the test "
                         "samples where none are set aside; 0: never");
  group.flag("--best", o.keep_best, "end with the weights of the epoch that is best on samples set aside for that");
  group
      .add_unset("--validation-share", a.table.validation_share,
                 "share of the training samples that is set aside to choose the best epoch and to stop by --patience "
                 "(default: 0.1 with --best; a folder of pictures may have a folder validation)")
      ->check(CLI::Range(0.0, 1.0));
  w.augment_option = takes_one_of(
      group.add(
          "--augment", w.augment,
          "how training pictures change: none, or of crop-flip (shifted by up to 4 pixels and mirrored), rotate "
          "(by up to 15 degrees) and colour (brightness, contrast, saturation) those wanted, with commas between"),
      {"none", "crop-flip", "rotate", "colour"});
  takes_one_of(group.add("--optimizer", w.optimizer, "of the float parameters: diodemix, adam or sgd"),
               {"diodemix", "adam", "sgd"});
  w.lr = group.add_unset("--lr", o.lr, "rate of the float parameters");
  group.add_unset("--weight-decay", o.weight_decay, "of the float weights");
  group.add_unset("--integer-lr", o.integer_lr, "rate of the int8 weights (DiodeMix)");
  group.add_unset("--integer-memory", o.integer_memory,
                  "share of the steps over which DiodeMix remembers the votes on a 1-bit weight");
  takes_one_of(group.add_unset("--schedule", w.schedule, "of all rates: cosine, linear or constant"),
               {"cosine", "linear", "constant"});
  group.add_unset("--warmup", o.warmup, "share of the steps over which the rates rise");
  w.step_floor =
      group.add("--step-floor", a.guard.floor, "least step size of an activation, as a share of its first; 0: none");
  group.add("--renew-scale-every", o.renew_scale_every,
            "steps between new scales of 4-bit weights and of int8 codes; 0: never");
  group.flag("--wide-gradients", o.wide_gradients, "float32 gradients for int8 weights instead of int8");
  group.flag("--bfloat16-moments", w.bfloat16_moments, "the optimizer's moments in half the memory");
  takes_one_of(group.add("--precision", w.precision,
                         "of a step's products: float32, or bfloat16 (autocast); tests are in float32"),
               {"float32", "bfloat16"});
  takes_one_of(group.add("--class-weights", w.class_weights,
                         "none, or balanced: each class weighs as much in the loss, however many samples it has"),
               {"none", "balanced"});
  group.flag("--freeze-binary", o.freeze_binary, "leave the 1-bit weights as they start, for comparison");
  add_seed(command, o.seed, "start of every random number")->group(group.title());
}

void add_output_options(CLI::App& command, TrainArguments& a) {
  Group group(command, "What is kept");
  group
      .add_unset("--folds", a.folds,
                 "cross-validation of a table: nothing is kept of so many nets, each tested with the rows that it has "
                 "not seen, so that every row counts once")
      ->check(CLI::Range(2, most_folds));
  auto& o = a.options;
  takes_file(group.add_unset("-o,--out", a.out, "where to save the model (safetensors)"));
  CLI::Option* run = takes_folder(group.add_unset(
      "--run", a.run, "a folder for the whole run: config, log, TensorBoard events, checkpoints, model, report"));
  group.flag("--training-form", a.words.training_form, "save the weights as they train, not packed");
  takes_file(group.add_unset("--logits", a.logits, "where to save the test images' logits (safetensors)"));
  takes_folder(group.add_unset("--checkpoints", o.checkpoints, "folder for training checkpoints alone"))->excludes(run);
  group.add("--checkpoint-every", o.checkpoint_every, "steps between them; 0: once an epoch");
  group.flag("--dry-run", a.dry_run, "print the layers, their sizes and the steps, and end");
  group.flag("--resume", o.resume, "go on from the newest good checkpoint in the folder");
}

int bits_in(const std::string& word, std::size_t equals) {
  const std::string digits = word.substr(equals + 1);
  for (const int bits : {32, 8, 4, 1})
    if (digits == std::to_string(bits)) return bits;
  TORCH_CHECK_VALUE(false, "--bits-of ", word, ": expected 32, 8, 4 or 1 bits, got ", digits);
}

[[noreturn]] void useless(const std::string& option, const std::string& why) {
  throw CLI::ValidationError(option, why);
}

/// Whether the word of an option is the second of two.
bool says_second(const char* option, const std::string& word, const char* first, const char* second) {
  TORCH_CHECK_VALUE(word == first || word == second, option, ": expected ", first, " or ", second, ", got '", word,
                    "'");
  return word == second;
}

/// --hidden, and --width where it is the same.
void resolve_sizes(models::ModelConfig& c, const std::optional<std::int64_t>& hidden) {
  const models::Architecture& architecture = models::architecture_of(c);
  TORCH_CHECK_VALUE(!hidden || !architecture.described, "--hidden ", *hidden, ": the net's description says its sizes");
  TORCH_CHECK_VALUE(!hidden || architecture.inner != models::InnerLinear::where_given || c.linear_bits != 0,
                    "--hidden ", *hidden, ": ", c.arch, " has an inner linear only where --linear-bits gives it one");
  TORCH_CHECK_VALUE(!hidden || !c.width || !architecture.all_linear, "--hidden ", *hidden, " and --width ", *c.width,
                    ": expected one of them, as they are the same size of an ", c.arch, ", got both");
  if (hidden) c.hidden = *hidden;
  if (architecture.all_linear && c.width) c.hidden = *std::exchange(c.width, std::nullopt);
}

/// Whether a described net has a layer whose width --bits gives.
bool has_open_bits(const models::ModelConfig& c) {
  for (const models::LayerSpec& layer : c.layers) {
    const bool float_first = &layer == &c.layers.front() && !c.quantise_first;
    if (layer.type != models::LayerSpec::Type::pool && layer.bits == 0 && !float_first) return true;
  }
  return false;
}

/// Widths that a described net has no layer for.
void check_widths(const TrainArguments& a) {
  if (a.net.empty()) return;
  if (a.config.linear_bits != 0)
    useless("--linear-bits " + std::to_string(a.config.linear_bits),
            "the net's description says the bits of its layers");
  if (a.words.bits->count() > 0 && !has_open_bits(a.config))
    useless("--bits " + std::to_string(a.config.bits),
            "is for layers without bits of their own, the net's description has none");
}

/// The net of --from, which is read before the data.
void start_with(TrainArguments& a) {
  a.source = models::load_classifier(a.from);
  const models::ModelConfig& source = a.source->config();
  TORCH_CHECK_VALUE(a.source->quant_layers().empty(), "--from ", a.from,
                    ": expected a float model (bie train --bits 32), got a quantised one");
  a.config = train::with_net_of(a.config, source);
  a.words.sized = true;
  formats::SplitRule& split = a.table.table.split;
  // Rows that the float model was tested with stay apart from those that it has learnt.
  const bool says_none = split.kind == formats::SplitKind::shuffle && split.seed == 0;
  if (source.table && says_none) split = source.table->split;
  if (!source.fit) return;
  data::PictureOptions& pictures = a.table.pictures;
  if (!a.data.starts_with("images:")) return;
  if (!pictures.size) pictures.size = {source.image[1], source.image[2]};
  if (!pictures.fit) pictures.fit = source.fit;
}

/// No output takes the place of what the command reads or of another output, and a folder that holds a run is not
/// written over.
void check_outputs(const TrainArguments& a) {
  CommandFiles files;
  files.reads(a.net, "the net's description");
  files.reads(a.from, "the model that training starts from");
  reads_data(files, a.data, a.table);
  if (!a.run.empty()) files.fills("--run", a.run, train::RunFolder(a.run).files());
  files.fills("--checkpoints", a.options.checkpoints, {});
  files.writes("--out", a.out);
  files.writes("--logits", a.logits);
  if (a.dry_run || a.options.resume || !std::filesystem::is_directory(a.run)) return;
  const formats::FolderLock lock("run folder", a.run);  // refuses where a run is going on
  for (const std::string& file : train::RunFolder(a.run).files())
    TORCH_CHECK_VALUE(!std::filesystem::exists(file), "--run ", a.run, ": ", file,
                      " is of a run; --resume goes on with that run, another folder is for another one");
}

}  // namespace

void set_layer_bits(models::ModelConfig& config, const std::vector<std::string>& bits_of, std::optional<int> first,
                    std::optional<int> last) {
  const std::vector<std::string> names = models::layer_names(config);
  std::map<std::string, std::string> said;  // the option that speaks of a layer
  if (config.quantise_first) said[names.front()] = "--quantise-first";
  const auto set = [&](const std::string& name, int bits, const std::string& option) {
    const auto [found, fresh] = said.emplace(name, option);
    if (!fresh) useless(option, "expected one option for layer " + name + ", got " + found->second + " too");
    config.bits_of[name] = bits;
  };
  if (first) set(names.front(), *first, "--first " + std::to_string(*first));
  if (last) set(names.back(), *last, "--last " + std::to_string(*last));
  for (const std::string& word : bits_of) {
    const std::size_t equals = word.rfind('=');
    TORCH_CHECK_VALUE(equals != std::string::npos && equals > 0, "--bits-of: expected NAME=BITS, got ", word);
    set(word.substr(0, equals), bits_in(word, equals), "--bits-of " + word);
  }
}

namespace {

/// Refuses options that keep one model or choose other test rows.
void check_folds(const TrainArguments& a) {
  const std::string option = "--folds " + std::to_string(a.folds);
  if (!a.data.starts_with("csv:") || a.data == "csv:-") useless(option, "is for --data csv:FILE, got " + a.data);
  const std::pair<const char*, bool> others[] = {
      {"--out", !a.out.empty()},       {"--run", !a.run.empty()},
      {"--logits", !a.logits.empty()}, {"--checkpoints", !a.options.checkpoints.empty()},
      {"--resume", a.options.resume},  {"--test-data", !a.table.test_file.empty()},
      {"--from", !a.from.empty()},
  };
  for (const auto& [other, is_given] : others)
    if (is_given) useless(option, std::string("trains several nets and keeps none, ") + other + " is for one");
}

/// Checks the options on a net of small images first, because reading the data may take minutes.
void check_before_data(const TrainArguments& a) {
  const bool open = a.data.starts_with("images:") && a.words.arch->count() == 0;  // the pictures choose the net
  models::ModelConfig config = a.config;
  if (!config.layers.empty()) return;  // which are checked as they are read
  config.image = {1, 32, 32};
  if (models::architecture_of(config).all_linear) config.image = {1, 1, 8};
  config.classes = 2;
  config.class_names.clear();
  config.table.reset();
  if (open) return;
  set_layer_bits(config, a.words.bits_of, a.words.first, a.words.last);
  // The sizes are checked: a small net takes no time.
  config.hidden = std::min<std::int64_t>(config.hidden, 64);
  if (config.width) config.width = std::min<std::int64_t>(*config.width, 16);
  const std::shared_ptr<models::Classifier> model = models::make_model(config);
  layers::set_step_size_guard(*model, a.guard);
  check_use(a, *model);
  train::check_options(*model, a.options);
}

}  // namespace

void add_options(CLI::App& command, TrainArguments& a) {
  add_data(command, a.data);
  add_device(command, a.device);
  add_table_options(command, a.table);
  add_picture_options(command, a.table);
  add_model_options(command, a);
  add_recipe_options(command, a);
  add_output_options(command, a);
}

void resolve(TrainArguments& a) {
  const TrainArguments::Words& w = a.words;
  check_outputs(a);
  a.options.device = train::device_of(a.device);
  a.options.augment = train::augmentations_of(w.augment);
  if (!a.net.empty()) a.config = models::load_net_description(a.net, a.config);
  check_widths(a);
  const models::Architecture* const architecture = models::find_architecture(a.config.arch);
  TORCH_CHECK_VALUE(!a.net.empty() || architecture == nullptr || !architecture->described, "--arch ", a.config.arch,
                    ": --net FILE describes such a net");
  a.words.sized = w.hidden.has_value() || a.config.width.has_value();
  resolve_sizes(a.config, w.hidden);
  a.config.norm = !w.no_norm;
  if (!a.from.empty()) start_with(a);
  a.table.validation = a.options.keep_best;
  a.config.weights = models::weight_form_of(w.weights);
  a.options.optimizer = train::optimizer_of(w.optimizer);
  if (!w.schedule.empty()) a.options.schedule = optim::schedule_of(w.schedule);
  a.options.bfloat16 = says_second("--precision", w.precision, "float32", "bfloat16");
  if (w.bfloat16_moments) a.options.moments = optim::MomentType::bfloat16;
  a.options.balanced_classes = says_second("--class-weights", w.class_weights, "none", "balanced");
  if (a.options.balanced_classes && a.table.table.regression)
    useless("--class-weights balanced", "is for classes, --task regression predicts a number");
  if (w.training_form) a.form = models::SavedForm::training;
  a.compat = layers::compat_of(w.compat);
  TORCH_CHECK_VALUE(a.compat == layers::Compat::none || w.gradients != "exact", "--gradients exact: --compat ",
                    w.compat, " computes the reference's gradients");
  if (w.gradients == "reference") a.gradients = ops::GradMode::reference;
  const auto& o = a.options;
  if (o.checkpoint_every > 0 && a.run.empty() && o.checkpoints.empty())
    useless("--checkpoint-every " + std::to_string(o.checkpoint_every), "--run DIR or --checkpoints DIR keeps them");
  if (w.training_form && a.run.empty() && a.out.empty()) useless("--training-form", "--out FILE or --run DIR saves it");
  if (a.folds > 0) check_folds(a);
  check_before_data(a);
}

void check_train_words(const std::vector<std::string>& words, const std::string& what) {
  CLI::App app;
  Global global;
  TrainArguments a;
  add_global_options(app, global, "");
  add_options(*app.add_subcommand("train"), a);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
    resolve(a);
  } catch (const CLI::ParseError& error) {
    throw CLI::ValidationError(what, error.what());
  } catch (const c10::ValueError& error) {
    C10_THROW_ERROR(ValueError, what + ": " + error.what_without_backtrace());
  } catch (const formats::Error& error) {
    throw formats::Error(what + ": " + error.what());
  }
}

namespace {

/// A folder of pictures, large enough for a convolutional net, and nothing said of another one.
bool wants_net_of_pictures(const TrainArguments& a, const data::Dataset& data) {
  const std::int64_t height = data.train_images.size(2), width = data.train_images.size(3);
  return a.data.starts_with("images:") && a.words.arch->count() == 0 && a.net.empty() && a.from.empty() &&
         !a.words.sized && !a.config.depth && a.config.norm && a.config.linear_bits == 0 &&
         std::min(height, width) >= 16;
}

}  // namespace

void use_data(TrainArguments& a, const data::Dataset& data) {
  const TrainArguments::Words& w = a.words;
  models::ModelConfig& c = a.config;
  train::TrainOptions& o = a.options;
  if (data.table && models::architecture_of(c).all_linear) {
    const train::TableDefaults fit = train::table_defaults(data.train_images.size(0), data.classes, c.bits);
    if (!w.sized) c.hidden = fit.hidden;
    if (!c.depth) c.depth = fit.depth;
    if (w.epochs->count() == 0) o.epochs = fit.epochs;
  }
  if (wants_net_of_pictures(a, data)) {
    c.arch = "vgg-small";
    c.width = 16;
    const bool augments = w.augment_option->count() == 0;
    if (augments) o.augment = {.crop_flip = true};
    log::info(std::string("pictures: vgg-small of width 16") + (augments ? ", with --augment crop-flip" : "") +
              "; --arch names another net");
  }
  if (w.patience->count() > 0 && o.patience >= o.epochs)
    useless("--patience " + std::to_string(o.patience),
            "ends nothing within " + std::to_string(o.epochs) + (o.epochs == 1 ? " epoch" : " epochs"));
}

void check_use(const TrainArguments& a, const models::Classifier& model) {
  const TrainArguments::Words& w = a.words;
  bool steps = false, integers = false;  // layers of 8 or 4 bits, int8 weights that are trained
  for (const auto& layer : model.quant_layers()) {
    const bool one = layer->weight_bits() == 1;
    steps |= !one;
    integers |=
        (a.config.weights == models::WeightForm::integer || (a.config.weights == models::WeightForm::usual && one)) &&
        !(one && a.options.freeze_binary);
  }
  const bool quantised = !model.quant_layers().empty();
  const char* const none = "is for quantised layers, the model has none";
  if (a.compat != layers::Compat::none && !quantised) useless("--compat " + w.compat, none);
  if (w.step_floor->count() > 0 && !quantised) useless("--step-floor", none);
  if (w.gradients == "reference" && !steps)
    useless("--gradients reference", "is for layers of 8 and 4 bits, the model has none");
  if (w.bfloat16_moments && a.options.optimizer != train::OptimizerKind::diodemix && !integers)
    useless("--bfloat16-moments",
            "is for DiodeMix, the optimizer of int8 weights, of which the model has none, and of "
            "floats with --optimizer diodemix");
  if (a.config.quantise_first && dynamic_cast<layers::QuantLayer*>(model.products().front().layer.get()) == nullptr)
    useless("--quantise-first", "the first layer has 32 bits");
}

}  // namespace bie::cli
