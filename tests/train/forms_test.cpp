// Every optimizer trains every form of weight at every width, and what is saved predicts what was trained.
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "bie/models/model_file.h"
#include "bie/train/trainer.h"
#include "tests/support/scratch.h"
#include "tests/train/small_runs.h"

namespace bie::train::test {
namespace {

using models::WeightForm;

class Forms : public OneThread {
 protected:
  const data::Dataset data_ = separable();
};

TEST_F(Forms, EveryOptimizerTrainsEveryFormAtEveryWidth) {
  for (const OptimizerKind optimizer : {OptimizerKind::diodemix, OptimizerKind::adam, OptimizerKind::sgd})
    for (const WeightForm form : {WeightForm::usual, WeightForm::floating, WeightForm::integer})
      for (const int bits : {32, 8, 4, 1}) {
        SCOPED_TRACE(testing::Message() << name(optimizer) << ", " << models::name(form) << " weights, " << bits
                                        << " bits");
        if (bits == 32 && form == WeightForm::integer) continue;  // there are none
        models::ModelConfig config = small_config(bits);
        config.weights = form;
        const auto model = model_of(config);
        const bool integer = form == WeightForm::integer || (form == WeightForm::usual && bits == 1);
        TrainOptions o;
        o.epochs = 8;
        o.batch = 32;
        o.optimizer = optimizer;
        std::vector<double> losses;  // of the epochs
        at::Tensor before, after;
        const auto watch = [&](const Progress& p) {
          if (p.step % 12 == 0) losses.push_back(p.loss);
          if (bits == 32) return;
          after = model->quant_layers()[0]->weight.detach().clone();
          if (p.step == 1) before = after;
        };
        const TrainResult result = fit(*model, data_, o, {watch, {}});
        ASSERT_EQ(losses.size(), 8u);
        EXPECT_LT(losses.back(), 0.6 * losses.front());
        EXPECT_GE(result.test_score, 0.9);
        EXPECT_GT(result.optimizer_bytes, 0);
        EXPECT_EQ(std::isnan(result.flipped), bits != 1);
        if (bits == 32) continue;
        EXPECT_STREQ(model->quant_layers()[0]->weight_form(), integer ? "int8" : "float");
        EXPECT_FALSE(after.equal(before));
      }
}

TEST_F(Forms, DeepNetsLearnByTheirRecipe) {
  const data::Dataset data = few({8, 8});
  struct Net {
    const char* arch;
    int bits, linear_bits;
  };
  for (const Net& net :
       {Net{"resnet20", 32, 0}, Net{"resnet20", 8, 8}, Net{"resnet20", 4, 1}, Net{"vgg-small", 8, 1}}) {
    SCOPED_TRACE(testing::Message() << net.arch << ", " << net.bits << " bits, linear of " << net.linear_bits);
    const auto model = model_of({.arch = net.arch,
                                 .bits = net.bits,
                                 .image = {1, 8, 8},
                                 .classes = 3,
                                 .hidden = 32,
                                 .linear_bits = net.linear_bits});
    TrainOptions o;
    o.epochs = net.arch == std::string("resnet20") ? 6 : 3;
    o.batch = 16;
    o.optimizer = OptimizerKind::sgd;
    o.lr = 0.02;  // the default one is for hundreds of steps
    std::vector<double> losses;
    fit(*model, data, o, {[&](const Progress& p) { losses.push_back(p.loss); }, {}});
    EXPECT_LT(losses.back(), 0.7 * losses.front());
  }
}

TEST_F(Forms, AFileOfATrainedModelPredictsTheSame) {
  struct Form {
    const char* arch;
    int bits;
    models::WeightForm weights;
    bool norm, quantise_first;
    int linear_bits = 0;
  };
  std::vector<Form> forms = {
      {"mlp", 32, WeightForm::usual, true, false},        {"lenet", 8, WeightForm::integer, true, false},
      {"lenet", 4, WeightForm::usual, true, false},       {"lenet", 4, WeightForm::floating, false, true},
      {"lenet", 32, WeightForm::integer, true, false, 1}, {"vgg-small", 4, WeightForm::usual, true, false, 1},
      {"resnet20", 8, WeightForm::usual, true, true, 1},  {"resnet20", 4, WeightForm::integer, true, false, 4}};
  for (const int bits : {8, 4, 1})
    for (const WeightForm weights : {WeightForm::floating, WeightForm::integer}) {
      forms.push_back({"mlp", bits, weights, true, false});
      forms.push_back({"mlp", bits, weights, false, true});
    }
  for (const Form& form : forms) {
    SCOPED_TRACE(testing::Message() << form.arch << ", " << form.bits << " bits, " << models::name(form.weights)
                                    << " weights, norm " << form.norm);
    const std::string arch = form.arch;
    const data::Dataset data = arch == "mlp" ? data_ : arch == "lenet" ? separable({16, 17}) : few({8, 9});
    models::ModelConfig config = small_config(form.bits);
    config.arch = form.arch;
    if (arch != "mlp") config.depth.reset();
    config.image = {1, data.train_images.size(2), data.train_images.size(3)};
    config.norm = form.norm;
    config.quantise_first = form.quantise_first;
    config.weights = form.weights;
    config.linear_bits = form.linear_bits;
    const auto model = model_of(config);
    fit(*model, data, short_run(1));
    const at::NoGradGuard no_grad;
    const at::Tensor logits = model->forward(data.test_images);
    const bie::test::Scratch scratch;
    for (const models::SavedForm saved : {models::SavedForm::packed, models::SavedForm::training}) {
      const std::string path = scratch.path("a"), again = scratch.path("b");
      models::save_model(*model, path, saved);
      const auto loaded = models::load_classifier(path);
      EXPECT_TRUE(loaded->forward(data.test_images).equal(logits));
      models::save_model(*loaded, again, saved);
      EXPECT_EQ(bie::test::read_file(again), bie::test::read_file(path));
    }
  }
}

}  // namespace
}  // namespace bie::train::test
