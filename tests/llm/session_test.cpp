// Sessions and sequences: which belong together, and several threads on one model.
#include "bie/llm/session.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "bie/formats/error.h"
#include "tests/llm/small_model.h"
#include "tests/support/scratch.h"

namespace bie::llm::test {
namespace {

using bie::test::Scratch;

std::shared_ptr<const Model> small_model(std::int64_t layers = 2, Arithmetic arithmetic = Arithmetic::int8) {
  const Scratch scratch;
  const std::string path = scratch.path("model.gguf");
  save_small_model(path, layers);
  return std::make_shared<const Model>(path, arithmetic, kernels::serial());
}

std::vector<std::int32_t> some_tokens(std::int32_t first, int count) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back((first + 7 * i) % 40);
  return tokens;
}

std::vector<float> read(Session& session, Sequence& sequence, const std::vector<std::int32_t>& tokens) {
  return session.read({{&sequence, tokens.data(), static_cast<std::int64_t>(tokens.size()), false}});
}

TEST(Session, RefusesSequencesOfAnotherModel) {
  const auto model = small_model(), shallow = small_model(1), twin = small_model();
  Session session(model, 1, CacheKind::q8);
  for (const auto& other : {shallow, twin}) {
    Session its(other, 1, CacheKind::q8);
    Sequence sequence = its.sequence();
    EXPECT_THROW(read(session, sequence, {1, 2, 3}), formats::Error);
    EXPECT_EQ(sequence.length(), 0);
    EXPECT_EQ(read(its, sequence, {1, 2, 3}).size(), 40u);
  }
  Session floats(model, 1, CacheKind::f32);
  Sequence sequence = floats.sequence();
  EXPECT_THROW(read(session, sequence, {1}), formats::Error);
}

TEST(Session, ACutSequenceIsReadAgain) {
  Session session(small_model(), 2, CacheKind::q8);
  Sequence sequence = session.sequence();
  const auto tokens = some_tokens(3, 130);
  const std::vector<float> wanted = read(session, sequence, tokens);
  for (const std::int64_t length : {0, 1, 63, 64, 65, 128, 129}) {
    sequence.cut(length);
    EXPECT_EQ(read(session, sequence, {tokens.begin() + length, tokens.end()}), wanted) << "cut to " << length;
  }
}

TEST(LanguageThreads, SessionsOfOneModelSideBySide) {
  for (const Arithmetic arithmetic : {Arithmetic::int8, Arithmetic::exact}) {
    const auto model = small_model(2, arithmetic);
    const CacheKind kind = arithmetic == Arithmetic::int8 ? CacheKind::q8 : CacheKind::f32;
    const auto answer = [&](int threads, std::int32_t first) {
      Session session(model, threads, kind);
      Sequence sequence = session.sequence();
      std::vector<float> last = read(session, sequence, some_tokens(first, 70));
      for (std::int32_t i = 0; i < 4; ++i) last = read(session, sequence, {i});
      return last;
    };
    const std::vector<std::vector<float>> wanted = {answer(1, 0), answer(1, 1)};
    std::vector<std::vector<float>> found(2);
    std::vector<std::thread> threads;
    for (std::int32_t i = 0; i < 2; ++i)
      threads.emplace_back([&, i] { found[static_cast<std::size_t>(i)] = answer(2, i); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(found, wanted);
  }
}

TEST(LanguageThreads, TheTwoHoldersOfAPageSideBySide) {
  const auto model = small_model();
  Session first(model, 1, CacheKind::q8), second(model, 1, CacheKind::q8);
  const auto begun = some_tokens(5, 70);  // the second page is not full
  std::vector<std::vector<float>> wanted;
  for (std::int32_t i = 0; i < 2; ++i) {
    Sequence alone = first.sequence();
    read(first, alone, begun);
    wanted.push_back(read(first, alone, {i, 1}));
  }
  for (int round = 0; round < 10; ++round) {
    Sequence one = first.sequence();
    read(first, one, begun);
    Sequence other = one;
    // Whoever comes last finds the page its own and writes where the first one has read.
    std::vector<float> of_other;
    std::thread thread([&] { of_other = read(second, other, {1, 1}); });
    EXPECT_EQ(read(first, one, {0, 1}), wanted[0]);
    thread.join();
    EXPECT_EQ(of_other, wanted[1]);
  }
}

}  // namespace
}  // namespace bie::llm::test
