// The defaults of `bie train`, and the names of its optimizers.
#include "bie/train/recipe.h"

#include <gtest/gtest.h>

#include <initializer_list>

#include "tests/support/scratch.h"

namespace bie::train::test {
namespace {

constexpr OptimizerKind kinds[] = {OptimizerKind::diodemix, OptimizerKind::adam, OptimizerKind::sgd};

TEST(Recipe, DefaultsFollowOptimizerWidthAndNorm) {
  for (const OptimizerKind kind : kinds)
    for (const int bits : {32, 8, 4, 1})
      for (const bool norm : {true, false}) {
        SCOPED_TRACE(testing::Message() << name(kind) << ", " << bits << " bits, norm " << norm);
        models::ModelConfig config;
        config.bits = bits;
        config.norm = norm;
        const Recipe r = default_recipe(config, kind);
        const bool sgd = kind == OptimizerKind::sgd;
        EXPECT_EQ(r.lr, sgd ? (norm ? 0.05 : 0.01) : bits == 1 ? 5e-3 : 1e-3);
        EXPECT_EQ(r.weight_decay, sgd ? 5e-4 : 0);
        EXPECT_EQ(r.integer_lr, 1e-3);
        EXPECT_EQ(r.integer_memory, 0.3);
        EXPECT_EQ(r.schedule.kind, optim::ScheduleKind::cosine);
        EXPECT_EQ(r.schedule.warmup, sgd ? 0.02 : 0);
      }
}

TEST(Recipe, TheBatchFollowsTheDataWhereTheyAreFew) {
  const std::int64_t wanted[][2] = {{60000, 64}, {1437, 64}, {384, 64}, {383, 32}, {192, 32}, {120, 16},
                                    {96, 16},    {95, 8},    {48, 8},   {5, 8},    {0, 8}};
  for (const auto& [images, batch] : wanted) EXPECT_EQ(default_batch(images), batch) << images;
}

TEST(Recipe, TheNetOfATableFollowsItsRowsItsClassesAndTheBits) {
  struct Wanted {
    std::int64_t rows, classes;
    int bits;
    std::int64_t hidden, epochs;
  };
  for (const Wanted& w : std::initializer_list<Wanted>{{120, 3, 32, 64, 100},
                                                       {120, 3, 8, 64, 100},
                                                       {120, 3, 1, 128, 50},
                                                       {500, 1, 1, 128, 50},
                                                       {171, 4, 32, 256, 100},
                                                       {171, 6, 1, 256, 100},
                                                       {4000, 2, 8, 64, 50},
                                                       {8000, 2, 1, 128, 25},
                                                       {1000000, 1, 4, 64, 20}}) {
    const TableDefaults found = table_defaults(w.rows, w.classes, w.bits);
    EXPECT_EQ(found.hidden, w.hidden) << w.rows << " rows, " << w.classes << " classes, " << w.bits << " bits";
    EXPECT_EQ(found.epochs, w.epochs) << w.rows << " rows, " << w.classes << " classes, " << w.bits << " bits";
    EXPECT_EQ(found.depth, 1);
  }
}

TEST(Recipe, DeepNetsTakeTheUsualRateOfSgd) {
  for (const char* arch : {"vgg-small", "resnet20"})
    for (const int bits : {32, 8, 4}) {
      const models::ModelConfig config{.arch = arch, .bits = bits};
      const Recipe r = default_recipe(config, OptimizerKind::sgd);
      EXPECT_EQ(r.lr, 0.1);
      EXPECT_EQ(r.weight_decay, 5e-4);
      EXPECT_EQ(r.schedule.kind, optim::ScheduleKind::cosine);
      EXPECT_EQ(r.schedule.warmup, 0.02);
      EXPECT_EQ(default_recipe(config, OptimizerKind::diodemix).lr, 1e-3);
    }
}

TEST(Recipe, ABinaryResNetFlipsSooner) {
  for (const int bits : {8, 4, 1}) {
    const Recipe r = default_recipe({.arch = "resnet20", .bits = bits}, OptimizerKind::diodemix);
    EXPECT_EQ(r.integer_lr, bits == 1 ? 1e-2 : 1e-3);
    EXPECT_EQ(r.integer_memory, bits == 1 ? 0.1 : 0.3);
  }
}

TEST(Recipe, OptimizersHaveNames) {
  for (const OptimizerKind kind : kinds) EXPECT_EQ(optimizer_of(name(kind)), kind);
  EXPECT_STREQ(name(OptimizerKind::diodemix), "diodemix");
  EXPECT_STREQ(name(OptimizerKind::adam), "adam");
  EXPECT_STREQ(name(OptimizerKind::sgd), "sgd");
  for (const char* wrong : {"", "Adam", "adamw", "diodemix "})
    bie::test::expect_sentence(bie::test::refusal([&] { optimizer_of(wrong); }), wrong, "diodemix, adam or sgd");
}

}  // namespace
}  // namespace bie::train::test
