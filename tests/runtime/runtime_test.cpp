// Nets that run: folded and not, in passes of any size, on any threads, side by side, without allocating.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <thread>

#include "runtime/graph.h"
#include "runtime/memory_plan.h"
#include "tests/runtime/some_nets.h"

#if !defined(BIE_SANITIZED) && defined(__GLIBC__)
#define BIE_COUNTS_ALLOCATIONS 1
namespace {

std::atomic<std::int64_t> allocations{0};
thread_local bool counting = false;

void count() {
  if (counting) allocations.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

// glibc's own, under the names that every allocation of the process ends at.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void* malloc(std::size_t size) {
  count();
  return __libc_malloc(size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  count();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
  count();
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? 12 : 0;
}
}
#endif

namespace bie::runtime::test {
namespace {

constexpr int widths[] = {1, 4, 8};

class Bytes {
 public:
  explicit Bytes(const formats::NetFile& file) : bytes_(formats::net_bytes(file)), net(bytes_.data(), bytes_.size()) {}

 private:
  std::vector<std::uint8_t> bytes_;

 public:
  SharedNet net;
};

bie_options options(std::int64_t max_batch, int threads) {
  bie_options asked{};
  asked.max_batch = max_batch;
  asked.threads = threads;
  return asked;
}

TEST(Runtime, FoldedNetsGiveTheSameBits) {
  ReplayableRng rng;
  for (const int bits : widths)
    for (int times = 0; times < 20; ++times) {
      const TwoNets nets = conv_nets(bits, rng);
      const Bytes folded(nets.folded), plain(nets.plain);
      EXPECT_NE(folded.net.summary(), plain.net.summary());
      const std::vector<float> input = floats(6 * 3 * 12 * 11, rng, 2);
      EXPECT_EQ(run(folded.net, input, 6, options(4, 1)), run(plain.net, input, 6, options(4, 1))) << bits << " bits";
    }
}

TEST(Runtime, ConvolutionsOfFewOutputsStayApartWhereTilesOfPixelsAre) {
  const auto floats_and_codes = [](const formats::NetFile& file, bool has_pixel_tiles) {
    std::pair<int, int> tailed;
    for (const Work& work : plan_of(file, has_pixel_tiles).works)
      if (work.kind == Work::Kind::tailed)
        ++(op_of(file.nodes[work.node]) == NetOp::conv2d ? tailed.second : tailed.first);
    return tailed;
  };
  ReplayableRng rng;
  const formats::NetFile thin = code_net(8, rng), wide = wide_net(8, rng);
  EXPECT_EQ(floats_and_codes(wide, true), std::pair(1, 2));
  EXPECT_EQ(floats_and_codes(wide, false), std::pair(1, 2));
  EXPECT_EQ(floats_and_codes(thin, true).first, 0);
  EXPECT_LT(floats_and_codes(thin, true).second, floats_and_codes(thin, false).second);
}

TEST(Runtime, PlansGiveTheBitsOfNodesOneByOne) {
  for (const int bits : {4, 8})
    for (int times = 0; times < 10; ++times) {
      ReplayableRng rng;
      for (const formats::NetFile& file : {code_net(bits, rng), conv_net(bits, rng), wide_net(bits, rng)}) {
        const Plan plan = plan_of(file), apart = plan_of(node_by_node(file));
        const auto joined = [](const Plan& p) {
          return std::count_if(p.works.begin(), p.works.end(),
                               [](const Work& work) { return work.kind == Work::Kind::tailed; });
        };
        EXPECT_GT(joined(plan), 1);
        EXPECT_EQ(joined(apart), 0);
        const Bytes whole(file), nodes(node_by_node(file));
        const std::vector<float> input = floats(5 * whole.net.input().elements, rng, 2);
        const auto wanted = run(nodes.net, input, 5, options(2, 1));
        for (const int threads : {1, 3, 8})
          for (const std::int64_t batch : {1, 2, 5})
            ASSERT_EQ(run(whole.net, input, 5, options(batch, threads))[0], wanted[0])
                << bits << " bits, " << threads << " threads, passes of " << batch;
      }
    }
}

TEST(Runtime, AValueTimesItsSigmoidIsOneWorkWhereNobodyElseReadsTheSigmoid) {
  ReplayableRng rng;
  NetBuilder net;
  const Symbol x = net.clip(net.input({3, 9, 7}), -40, 30);
  const Symbol first = net.multiply(x, net.sigmoid(x)), second = net.multiply(net.sigmoid(first), first);
  const Symbol shared = net.sigmoid(second), third = net.multiply(second, shared);
  const Symbol other = net.multiply(third, net.sigmoid(x));
  const formats::NetFile file = net.finish({other, net.concat({shared, third})});
  const auto joined = [](const formats::NetFile& f) {
    const Plan plan = plan_of(f);
    return std::count_if(plan.works.begin(), plan.works.end(),
                         [](const Work& work) { return work.kind == Work::Kind::silu; });
  };
  EXPECT_EQ(joined(file), 2);
  EXPECT_EQ(joined(node_by_node(file)), 0);
  const Bytes whole(file), nodes(node_by_node(file));
  const std::vector<float> input = floats(3 * 3 * 9 * 7, rng, 9);
  const auto found = run(whole.net, input, 3, options(2, 1)), wanted = run(nodes.net, input, 3, options(3, 2));
  EXPECT_EQ(found[0], wanted[0]);
  EXPECT_EQ(found[1], wanted[1]);
}

TEST(Runtime, PassesOfAnySizeOnAnyThreadsGiveTheSameBits) {
  for (const int bits : {0, 1, 4, 8}) {
    ReplayableRng rng;
    const Bytes bytes(bits == 0 ? plain_net(rng) : conv_net(bits, rng));
    const std::vector<float> input = floats(7 * 3 * 12 * 11, rng, 2);
    const auto wanted = run(bytes.net, input, 7, options(1, 1));
    for (int threads = 1; threads <= 8; ++threads)
      for (const std::int64_t batch : {1, 3, 7, 16})
        ASSERT_EQ(run(bytes.net, input, 7, options(batch, threads)), wanted)
            << threads << " threads, passes of " << batch;
  }
}

TEST(Runtime, TakesTheCallersThreads) {
  ReplayableRng rng;
  const Bytes bytes(conv_net(4, rng));
  const std::vector<float> input = floats(3 * 12 * 11, rng, 2);
  int calls = 0;
  bie_options asked = options(1, 2);
  asked.pool = &calls;
  asked.parallel_for = [](void* pool, std::int64_t count, std::int64_t, bie_body body, void* task) {
    ++*static_cast<int*>(pool);
    std::thread other(body, task, count / 2, count);
    body(task, 0, count / 2);
    other.join();
  };
  EXPECT_EQ(run(bytes.net, input, 1, asked), run(bytes.net, input, 1, options(1, 1)));
  EXPECT_GT(calls, 0);
}

TEST(Runtime, TenThousandInferencesOfFourContextsOfOneNet) {
  ReplayableRng rng;
  const Bytes bytes(conv_net(1, rng));
  const std::vector<float> input = floats(3 * 12 * 11, rng, 2);
  const auto wanted = run(bytes.net, input, 1, options(1, 1));
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      bie_context* context = nullptr;
      check(bie_context_create(bytes.net.get(), nullptr, &context));
      std::vector<float> logits(5), shares(5);
      const void* const inputs[] = {input.data()};
      void* const outputs[] = {logits.data(), shares.data()};
      for (int j = 0; j < 2500; ++j)
        if (bie_run(context, 1, inputs, outputs) != BIE_OK || logits != wanted[0] || shares != wanted[1]) ++wrong;
      bie_context_free(context);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(Runtime, AContextKeepsItsNet) {
  ReplayableRng rng;
  const std::vector<std::uint8_t> bytes = formats::net_bytes(conv_net(8, rng));
  bie_net* net = nullptr;
  bie_context* context = nullptr;
  check(bie_net_from_memory(bytes.data(), bytes.size(), &net));
  check(bie_context_create(net, nullptr, &context));
  bie_net_free(net);
  const std::vector<float> input = floats(3 * 12 * 11, rng, 2);
  std::vector<float> logits(5), shares(5);
  const void* const inputs[] = {input.data()};
  void* const outputs[] = {logits.data(), shares.data()};
  EXPECT_EQ(bie_run(context, 1, inputs, outputs), BIE_OK);
  float sum = 0;
  for (const float share : shares) sum += share;
  EXPECT_NEAR(sum, 1, 1e-5);
  bie_context_free(context);
}

TEST(Runtime, RunAllocatesNothing) {
#ifndef BIE_COUNTS_ALLOCATIONS
  GTEST_SKIP() << "the sanitizer has malloc";
#else
  for (const int bits : widths) {
    ReplayableRng rng;
    const Bytes bytes(conv_net(bits, rng));
    bie_options asked = options(4, 1);
    bie_context* context = nullptr;
    check(bie_context_create(bytes.net.get(), &asked, &context));
    std::vector<float> input = floats(6 * 3 * 12 * 11, rng, 2), logits(30), shares(30);
    const void* const inputs[] = {input.data()};
    void* const outputs[] = {logits.data(), shares.data()};
    check(bie_run(context, 6, inputs, outputs));  // what a thread's first pass takes
    counting = true;
    const std::int64_t before = allocations.load();
    ::operator delete(::operator new(64));
    const std::int64_t seen = allocations.load();
    const bie_status status = bie_run(context, 6, inputs, outputs);
    input[5] = std::numeric_limits<float>::quiet_NaN();
    const bie_status refused = bie_run(context, 6, inputs, outputs);
    const std::int64_t after = allocations.load();
    counting = false;
    EXPECT_GT(seen, before) << "the hook counts nothing";
    EXPECT_EQ(after, seen) << bits << " bits";
    EXPECT_EQ(status, BIE_OK);
    EXPECT_EQ(refused, BIE_BAD_VALUES);
    bie_context_free(context);
  }
#endif
}

TEST(Runtime, ValuesThatLiveTogetherDoNotOverlap) {
  for (const int bits : widths) {
    ReplayableRng rng;
    const formats::NetFile net = conv_net(bits, rng);
    const Plan plan = plan_of(net);
    const MemoryPlan memory = plan_memory(plan, net.outputs, 5);
    std::int64_t all = 0;
    for (std::size_t at = 0; at < plan.works.size(); ++at) {
      // Whether a value is written by this work or before it, and read by it or later.
      const auto lives = [&](std::uint32_t value) {
        bool written = false, needed = false;
        for (std::size_t i = 0; i < plan.works.size(); ++i) {
          for (const std::uint32_t output : plan.works[i].writes) {
            written = written || (output == value && i <= at);
            needed = needed || (output == value && i == at);
          }
          for (const std::uint32_t input : plan.works[i].reads) needed = needed || (input == value && i >= at);
        }
        return written && needed && memory.offsets[value] >= 0;
      };
      for (std::uint32_t a = 0; a < plan.values.size(); ++a) {
        if (!lives(a)) continue;
        const std::int64_t end = memory.offsets[a] + 5 * bytes_of(plan.values[a]);
        ASSERT_LE(end, memory.bytes);
        for (std::uint32_t b = a + 1; b < plan.values.size(); ++b)
          if (lives(b)) {
            ASSERT_TRUE(end <= memory.offsets[b] ||
                        memory.offsets[b] + 5 * bytes_of(plan.values[b]) <= memory.offsets[a])
                << a << " and " << b << " at work " << at;
          }
      }
    }
    for (const formats::NetValue& value : net.values) all += 5 * bytes_of(value);
    EXPECT_LT(memory.bytes, 2 * all / 3);
  }
}

/// Each kind of node that has no product, which would look at its numbers.
TEST(Runtime, ValuesThatAreNoNumbersAreRefusedWhateverTheNet) {
  const auto nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  using Make = Symbol (*)(NetBuilder&, Symbol);
  const Make kinds[] = {
      [](NetBuilder& net, Symbol x) { return net.clip(x, -1, 1); },
      [](NetBuilder& net, Symbol x) { return net.sigmoid(x); },
      [](NetBuilder& net, Symbol x) { return net.softmax(x); },
      [](NetBuilder& net, Symbol x) { return net.multiply(x, x); },
      [](NetBuilder& net, Symbol x) { return net.function(x, kernels::Function::tanh); },
      [](NetBuilder& net, Symbol x) { return net.layer_norm(x, 1e-5f, {}, {}); },
      [](NetBuilder& net, Symbol x) {
        return net.crop(x, {0, 0, 0}, {1});
      },
      [](NetBuilder& net, Symbol x) {
        return net.channel_prelu(x, {0.5f, 0.5f, 0.5f});
      },
  };
  for (const Make& make : kinds) {
    NetBuilder net;
    const Symbol x = net.input({3});
    const Bytes bytes(net.finish({make(net, x)}));
    Context context(bytes.net, options(2, 1));
    std::vector<float> outputs(6);
    const std::vector<float> good{1, 2, 3, 4, 5, 6};
    context.run(good.data(), 2, outputs.data());
    for (const float bad : {nan, infinity, -infinity}) {
      std::vector<float> values = good;
      values[5] = bad;
      try {
        context.run(values.data(), 2, outputs.data());
        ADD_FAILURE() << &make - kinds << " takes " << bad;
      } catch (const NetError& error) {
        EXPECT_EQ(error.status, BIE_BAD_VALUES);
        EXPECT_STREQ(error.what(), "the input holds NaN or infinity");
      }
    }
  }
}

TEST(Runtime, AnOutputThatIsNoNumberNamesItsNode) {
  NetBuilder net;
  const Symbol x = net.input({2});
  const Bytes bytes(net.finish({net.multiply(x, x)}));
  Context context(bytes.net, options(1, 1));
  const float large[] = {1e30f, 1};
  float outputs[2];
  try {
    context.run(large, 1, outputs);
    ADD_FAILURE();
  } catch (const NetError& error) {
    EXPECT_EQ(error.status, BIE_BAD_VALUES);
    EXPECT_NE(std::string(error.what()).find("node 0 (multiply)"), std::string::npos) << error.what();
  }
}

TEST(Runtime, ArgumentsThatCannotBeAreSentences) {
  ReplayableRng rng;
  const Bytes bytes(conv_net(8, rng));
  bie_net* net = nullptr;
  bie_context* context = nullptr;
  bie_tensor tensor;
  EXPECT_EQ(bie_net_load(nullptr, &net), BIE_BAD_ARGUMENT);
  EXPECT_EQ(bie_net_load("/there/is/no/such.net.bie", &net), BIE_BAD_FILE);
  EXPECT_NE(std::string(bie_last_error()).find("/there/is/no/such.net.bie"), std::string::npos);
  EXPECT_EQ(net, nullptr);
  EXPECT_EQ(bie_net_from_memory("abc", 3, &net), BIE_BAD_FILE);
  EXPECT_EQ(bie_net_from_memory("abc", SIZE_MAX, &net), BIE_BAD_ARGUMENT);
  EXPECT_EQ(bie_net_input(bytes.net.get(), 1, &tensor), BIE_BAD_ARGUMENT);
  EXPECT_EQ(bie_net_output(bytes.net.get(), -1, &tensor), BIE_BAD_ARGUMENT);
  bie_options asked = options(-1, 1);
  EXPECT_EQ(bie_context_create(bytes.net.get(), &asked, &context), BIE_BAD_ARGUMENT);
  asked = options(1, 5000);
  EXPECT_EQ(bie_context_create(bytes.net.get(), &asked, &context), BIE_BAD_ARGUMENT);
  check(bie_context_create(bytes.net.get(), nullptr, &context));
  const void* const inputs[] = {nullptr};
  void* const outputs[] = {nullptr, nullptr};
  EXPECT_EQ(bie_run(context, 1, inputs, outputs), BIE_BAD_ARGUMENT);
  EXPECT_EQ(bie_run(context, -1, inputs, outputs), BIE_BAD_ARGUMENT);
  EXPECT_EQ(bie_run(context, 0, inputs, outputs), BIE_OK);
  EXPECT_STREQ(bie_net_metadata(bytes.net.get(), "bits"), "8");
  EXPECT_EQ(bie_net_metadata(bytes.net.get(), "nothing"), nullptr);
  bie_context_free(context);
  bie_net_free(nullptr);
  bie_context_free(nullptr);
}

}  // namespace
}  // namespace bie::runtime::test
