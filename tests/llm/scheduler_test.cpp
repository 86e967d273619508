// Requests side by side, in a cache too small for them: each answer is what generate() writes alone.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "bie/formats/error.h"
#include "tests/llm/scheduled.h"

namespace bie::llm::test {
namespace {

TEST_F(SchedulerTest, AnswersAreThoseOfGenerateAlone) {
  kernels::test::ReplayableRng rng;
  const std::vector<std::int32_t> common = tokens(rng, 150);
  std::vector<Request> requests;
  for (int i = 0; i < 40; ++i) {
    Request request;
    if (i % 3 == 0) request.prompt.assign(common.begin(), common.begin() + rng.between(1, 150));
    const std::vector<std::int32_t> own = tokens(rng, rng.between(1, 100));
    request.prompt.insert(request.prompt.end(), own.begin(), own.end());
    request.tokens = rng.between(0, 130);
    request.sampler.temperature = i % 2 == 0 ? 0.0f : 1.5f;
    request.sampler.seed = static_cast<std::uint64_t>(i);
    request.sampler.top_k = i % 4 == 1 ? 10 : 0;
    request.sampler.frequency_penalty = i % 5 == 0 ? 0.5f : 0.0f;
    request.sampler.presence_penalty = i % 7 == 0 ? 0.25f : 0.0f;
    if (i % 6 == 0) request.sampler.biases = {{3, 2.0f}, {5, -100.0f}};
    if (i % 4 != 3) request.sampler.biases.push_back(never_ends);
    if (i % 8 == 0) request.stops = {"b0", "c1a0"};
    if (i % 4 == 0) request.likeliest = 3;
    request.client = std::string(1, static_cast<char>('a' + i % 3));
    request.priority = i % 11 == 0 ? -1 : 0;
    requests.push_back(request);
  }
  struct Setting {
    std::int64_t pages, rows;
    int threads;
  };
  for (const Setting& s : {Setting{1000, 256, 1}, Setting{5, 16, 1}, Setting{9, 7, 2}, Setting{6, 1, 1}}) {
    const auto scheduled = scheduler(s.pages, s.rows, 256, s.threads);
    std::vector<Served> served(requests.size());
    std::vector<bool> fits(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      // Some come while others are answered.
      for (int p = 0; p < static_cast<int>(i % 3); ++p) scheduled->pass();
      const auto size = static_cast<std::int64_t>(requests[i].prompt.size());
      fits[i] = size + requests[i].tokens <= scheduled->context();
      if (fits[i]) {
        scheduled->submit(requests[i], into(served[i]));
      }
    }
    run(*scheduled);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (!fits[i]) continue;
      const Answer wanted = alone(requests[i]);
      EXPECT_EQ(served[i].tokens, wanted.tokens) << "request " << i << " in " << s.pages << " pages";
      EXPECT_EQ(served[i].text, wanted.text);
      EXPECT_EQ(served[i].finish, wanted.finish);
      EXPECT_EQ(served[i].error, "");
      if (requests[i].likeliest) {
        EXPECT_EQ(served[i].likeliest, wanted.logprobs);
      }
    }
    const SchedulerCounts counts = scheduled->counts();
    EXPECT_EQ(counts.waiting + counts.running, 0);
    EXPECT_LE(counts.pages, s.pages);
    EXPECT_EQ(counts.pages, counts.kept_pages) << "no page is held but by the tree";
    if (s.pages == 1000) {
      EXPECT_GT(counts.cached, 0);
    }
    scheduled->forget();
    EXPECT_EQ(scheduled->counts().pages, 0);
  }
}

TEST_F(SchedulerTest, RequestsThatGaveUpTheirPagesWriteTheSame) {
  kernels::test::ReplayableRng rng;
  const auto scheduled = scheduler(9);
  std::vector<Request> requests(4);
  std::vector<Served> served(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt = tokens(rng, 10);
    requests[i].tokens = 250;  // five pages with the prompt
    requests[i].sampler.biases = {never_ends};
    requests[i].sampler.temperature = 1;
    scheduled->submit(requests[i], into(served[i]));
  }
  run(*scheduled);
  EXPECT_GT(scheduled->counts().put_back, 0);
  for (std::size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(served[i].tokens, alone(requests[i]).tokens);
}

TEST_F(SchedulerTest, ChancesOfThePromptAreThoseOfItsRows) {
  kernels::test::ReplayableRng rng;
  Request request;
  request.prompt = tokens(rng, 130);
  request.tokens = 3;
  request.likeliest = 2;
  request.of_prompt = true;
  std::vector<Served> served(2);
  for (const std::int64_t rows : {256, 5}) {
    const auto scheduled = scheduler(100, rows);
    Served& of_rows = served[rows == 256 ? 0 : 1];
    scheduled->submit(request, into(of_rows));
    run(*scheduled);
    ASSERT_EQ(of_rows.of_prompt.size(), 129u);
  }
  Session session(model_, 1, CacheKind::q8);
  for (std::size_t p = 0; p < 129; p += 16) {
    Request beginning;
    beginning.prompt.assign(request.prompt.begin(), request.prompt.begin() + static_cast<std::ptrdiff_t>(p + 1));
    beginning.tokens = 1;
    beginning.likeliest = 40;
    const Answer wanted = alone(beginning);
    for (const Served& s : served) {
      const TokenChance& chance = s.of_prompt[p];
      EXPECT_EQ(chance.token, request.prompt[p + 1]);
      ASSERT_EQ(chance.likeliest.size(), 2u);
      EXPECT_EQ(chance.likeliest[0], wanted.logprobs[0][0]);
      EXPECT_EQ(chance.likeliest[1], wanted.logprobs[0][1]);
      std::map<std::int32_t, double> all(wanted.logprobs[0].begin(), wanted.logprobs[0].end());
      EXPECT_EQ(chance.logprob, all.at(chance.token));
    }
  }
  // Without an answer there are chances all the same.
  request.tokens = 0;
  const auto scheduled = scheduler(100);
  Served none;
  scheduled->submit(request, into(none));
  run(*scheduled);
  EXPECT_EQ(none.of_prompt.size(), 129u);
  EXPECT_TRUE(none.tokens.empty());
  EXPECT_EQ(none.finish, Answer::Finish::length);
}

TEST_F(SchedulerTest, ABeginningThatWasReadIsNotReadAgain) {
  kernels::test::ReplayableRng rng;
  const auto scheduled = scheduler(100);
  Request request;
  request.prompt = tokens(rng, 200);
  request.tokens = 2;
  std::vector<Served> served(3);
  scheduled->submit(request, into(served[0]));
  run(*scheduled);
  EXPECT_EQ(served[0].cached, 0);
  scheduled->submit(request, into(served[1]));
  run(*scheduled);
  EXPECT_EQ(served[1].cached, 199);
  EXPECT_EQ(served[1].tokens, served[0].tokens);
  // The last token is always read, as its logits are wanted.
  request.prompt.resize(128);
  scheduled->submit(request, into(served[2]));
  run(*scheduled);
  EXPECT_EQ(served[2].cached, 127);
  EXPECT_EQ(served[2].tokens, alone(request).tokens);
  // Texts that part within a page share what is before; the page's holder keeps its own.
  for (const std::size_t same : {1u, 63u, 100u, 127u}) {
    Request other = request;
    other.prompt = tokens(rng, 160);
    std::copy_n(request.prompt.begin(), same, other.prompt.begin());
    other.prompt[same] = (request.prompt[same] + 1) % 38;
    Served of_other, again;
    scheduled->submit(other, into(of_other));
    scheduled->submit(request, into(again));
    run(*scheduled);
    EXPECT_GE(of_other.cached, static_cast<std::int64_t>(same));
    EXPECT_EQ(of_other.tokens, alone(other).tokens) << same;
    EXPECT_EQ(again.tokens, served[2].tokens) << same;
  }
}

TEST_F(SchedulerTest, OneOfManyEqualBeginningsIsRead) {
  kernels::test::ReplayableRng rng;
  const auto scheduled = scheduler(100, 64);
  Request request;
  request.prompt = tokens(rng, 192);
  request.prompt.push_back(0);
  request.tokens = 1;
  std::vector<Served> served(8);
  for (std::size_t i = 0; i < served.size(); ++i) {
    request.prompt.back() = static_cast<std::int32_t>(i);
    scheduled->submit(request, into(served[i]));
  }
  run(*scheduled);
  EXPECT_LT(scheduled->counts().read, 193 + 7 * 64);
}

TEST_F(SchedulerTest, VectorsAreThoseOfTheStatesOfATextAlone) {
  kernels::test::ReplayableRng rng;
  for (const auto& [pages, rows] : {std::pair<std::int64_t, std::int64_t>{1000, 256}, {5, 7}}) {
    const auto scheduled = scheduler(pages, rows);
    std::vector<Request> requests(18);
    std::vector<Served> served(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      requests[i].prompt = tokens(rng, rng.between(1, 200));
      requests[i].tokens = 40;
      requests[i].sampler.biases = {never_ends};
      if (i % 6 > 0) requests[i].pooling = static_cast<Pooling>(1 + i % 4);  // beside answers
      scheduled->submit(requests[i], into(served[i]));
    }
    run(*scheduled);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (!requests[i].pooling) {
        EXPECT_EQ(served[i].tokens, alone(requests[i]).tokens);
        continue;
      }
      Session session(model_, 1, CacheKind::q8);
      Sequence sequence = session.sequence();
      const auto& prompt = requests[i].prompt;
      const auto count = static_cast<std::int64_t>(prompt.size());
      const std::vector<float> states =
          session.read({{&sequence, prompt.data(), count, true}}, Session::Result::states);
      const auto width = static_cast<std::int64_t>(states.size()) / count;
      for (std::int64_t c = 0; c < width; ++c) {
        double sum = 0;
        for (std::int64_t r = 0; r < count; ++r)
          sum += static_cast<double>(states[static_cast<std::size_t>(r * width + c)]);
        const float wanted = requests[i].pooling == Pooling::mean ? static_cast<float>(sum / static_cast<double>(count))
                             : requests[i].pooling == Pooling::first
                                 ? states[static_cast<std::size_t>(c)]
                                 : states[static_cast<std::size_t>((count - 1) * width + c)];
        ASSERT_EQ(served[i].vector.at(static_cast<std::size_t>(c)), wanted) << "text " << i << ", element " << c;
      }
      EXPECT_TRUE(served[i].tokens.empty());
    }
    EXPECT_LE(scheduled->counts().pages, pages);
  }
}

TEST_F(SchedulerTest, ClientsTakeTurns) {
  kernels::test::ReplayableRng rng;
  const auto scheduled = scheduler(100, 1);  // one request at a time
  std::string order;
  const auto submit = [&](char client, std::int64_t priority = 0) {
    Request request;
    request.prompt = tokens(rng, 3);
    request.tokens = 1;
    request.client = std::string(1, client);
    request.priority = priority;
    scheduled->submit(request, [&order, client](const News& news) {
      if (news.has_started) order += client;
    });
  };
  for (int i = 0; i < 4; ++i) submit('a');
  submit('b');
  submit('b');
  submit('c', -1);
  run(*scheduled);
  EXPECT_EQ(order, "cababaa");
}

TEST_F(SchedulerTest, CancelledRequestsAreHeardNoMore) {
  kernels::test::ReplayableRng rng;
  const auto scheduled = scheduler(100, 4);
  std::vector<Served> served(8);
  std::vector<Scheduler::Id> ids;
  Request request;
  request.tokens = 20;
  request.sampler.biases = {never_ends};
  for (Served& s : served) {
    request.prompt = tokens(rng, 10);
    ids.push_back(scheduled->submit(request, into(s)));
  }
  for (int i = 0; i < 6; ++i) scheduled->pass();
  EXPECT_EQ(scheduled->counts().waiting + scheduled->counts().running, 8);
  for (const std::size_t i : {0u, 7u}) scheduled->cancel(ids[i]);
  scheduled->cancel(12345);
  EXPECT_EQ(scheduled->counts().waiting + scheduled->counts().running, 6);
  run(*scheduled);
  for (std::size_t i = 0; i < served.size(); ++i) EXPECT_EQ(served[i].finish.has_value(), i != 0 && i != 7) << i;
}

TEST_F(SchedulerTest, WrongRequestsAreRefused) {
  const auto scheduled = scheduler(3, 256, /*queue=*/2);
  EXPECT_EQ(scheduled->context(), 192) << "three pages";
  const auto refusal = [&](std::vector<std::int32_t> prompt) {
    Request request;
    request.prompt = std::move(prompt);
    try {
      scheduled->submit(std::move(request), [](const News&) {});
    } catch (const formats::Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal({}), "expected a prompt of one token at least, got an empty one");
  EXPECT_EQ(refusal(std::vector<std::int32_t>(193, 1)),
            "expected a prompt of at most 192 tokens, the context, got 193");
  EXPECT_EQ(refusal({40}), "expected tokens from 0 to 39, got 40");
  EXPECT_EQ(refusal({-1}), "expected tokens from 0 to 39, got -1");
  EXPECT_FALSE(scheduled->pass());
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(scheduled->is_full());
    Request request;
    request.prompt = {1, 2};
    scheduled->submit(std::move(request), [](const News&) {});
  }
  EXPECT_TRUE(scheduled->is_full());
  EXPECT_THROW(scheduler(1), formats::Error);
}

}  // namespace
}  // namespace bie::llm::test
