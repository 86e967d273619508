// Many threads on one net and on one object, and nets of thousands of nodes.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "tests/runtime/some_nets.h"

namespace bie::runtime::test {
namespace {

/// x -> relu(x), plus 0.25 - i / count per channel, `nodes` times over, with a shortcut over ten of them now and then.
formats::NetFile long_net(int nodes) {
  NetBuilder net;
  Symbol x = net.input({2, 3, 2}), kept = x;
  for (int i = 0; i < nodes; ++i) {
    TailNumbers tail;
    tail.activation = NetActivation::relu;
    const float shift = 0.25f - static_cast<float>(i % 7) * 0.125f;
    tail.shift = {shift, -shift};
    x = i % 10 == 9 ? net.tail(x, tail, kept) : net.clip(net.tail(x, tail), -1, 1);
    if (i % 10 == 9) kept = x = net.clip(x, 0, 1);
  }
  return net.finish({x});
}

/// The same by its formula: both shifts and all sums are multiples of 1/8, so the order of a sum does not matter.
std::vector<float> long_net_by_formula(std::vector<float> x, int nodes) {
  std::vector<float> kept = x;
  for (int i = 0; i < nodes; ++i)
    for (std::size_t j = 0; j < x.size(); ++j) {
      const float shift = 0.25f - static_cast<float>(i % 7) * 0.125f;
      x[j] += j / 6 % 2 == 0 ? shift : -shift;
      if (i % 10 == 9) x[j] += kept[j];
      x[j] = std::min(std::max(x[j], 0.0f), 1.0f);
      if (i % 10 == 9) kept[j] = x[j];
    }
  return x;
}

/// Multiples of 1/8, a list per thread.
std::vector<std::vector<float>> inputs_of(std::size_t threads, std::int64_t count) {
  ReplayableRng rng;
  std::vector<std::vector<float>> inputs(threads, std::vector<float>(static_cast<std::size_t>(count)));
  for (std::vector<float>& input : inputs)
    for (float& value : input) value = static_cast<float>(rng.between(-8, 8)) * 0.125f;
  return inputs;
}

void side_by_side(std::size_t threads, const std::function<void(std::size_t)>& body) {
  std::vector<std::thread> all;
  all.reserve(threads);
  for (std::size_t i = 0; i < threads; ++i) all.emplace_back(body, i);
  for (std::thread& thread : all) thread.join();
}

TEST(RuntimeThreads, FourContextsOfANetOfThousandsOfNodes) {
  constexpr int nodes = 6000;
  const std::vector<std::uint8_t> bytes = formats::net_bytes(long_net(nodes));
  const SharedNet net(bytes.data(), bytes.size());
  const std::vector<std::vector<float>> inputs = inputs_of(4, 12 * 3);
  std::atomic<int> wrong{0};
  side_by_side(4, [&](std::size_t i) {
    bie_options asked{};
    asked.max_batch = 1 + static_cast<std::int64_t>(i);
    for (int times = 0; times < 3; ++times)
      if (run(net, inputs[i], 3, asked)[0] != long_net_by_formula(inputs[i], nodes)) ++wrong;
  });
  EXPECT_EQ(wrong.load(), 0);
}

TEST(RuntimeThreads, OneObjectForEightThreads) {
  for (const int bits : {0, 4, 8}) {
    ReplayableRng rng;
    const std::vector<std::uint8_t> bytes = formats::net_bytes(bits == 0 ? long_net(40) : code_net(bits, rng));
    Context net(SharedNet(bytes.data(), bytes.size()));
    const SharedNet shared(bytes.data(), bytes.size());
    const std::vector<std::vector<float>> inputs = inputs_of(8, shared.input().elements);
    std::atomic<int> wrong{0};
    side_by_side(8, [&](std::size_t i) {
      const std::vector<float> wanted = run(shared, inputs[i], 1, {})[0];
      for (int times = 0; times < 50; ++times)
        if (net.run(inputs[i]) != wanted) ++wrong;
    });
    EXPECT_EQ(wrong.load(), 0) << bits << " bits";
  }
}

TEST(RuntimeThreads, AContextInUseIsRefusedAndItsRunStaysRight) {
  ReplayableRng rng;
  const std::vector<std::uint8_t> bytes = formats::net_bytes(code_net(8, rng));
  const SharedNet net(bytes.data(), bytes.size());
  const std::vector<float> input = floats(net.input().elements, rng, 2);
  std::vector<float> first(5), second(5, -7);
  struct Gate {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_inside = false, may_go = false;
  } gate;
  bie_options asked{};
  asked.pool = &gate;
  // The first loop of the pass stops inside bie_run until the second call has been answered.
  asked.parallel_for = [](void* pool, std::int64_t count, std::int64_t, bie_body body, void* task) {
    auto& at = *static_cast<Gate*>(pool);
    {
      std::unique_lock<std::mutex> lock(at.mutex);
      at.is_inside = true;
      at.changed.notify_all();
      at.changed.wait(lock, [&] { return at.may_go; });
    }
    body(task, 0, count);
  };
  asked.threads = 2;
  bie_context* context = nullptr;
  check(bie_context_create(net.get(), &asked, &context));
  const auto call = [&](std::vector<float>& output) {
    const void* const inputs[] = {input.data()};
    void* const outputs[] = {output.data()};
    return bie_run(context, 1, inputs, outputs);
  };
  bie_status one = BIE_FAILED;
  std::thread thread([&] { one = call(first); });
  {
    std::unique_lock<std::mutex> lock(gate.mutex);
    gate.changed.wait(lock, [&] { return gate.is_inside; });
  }
  EXPECT_EQ(call(second), BIE_BUSY);
  EXPECT_NE(std::string(bie_last_error()).find("another thread"), std::string::npos) << bie_last_error();
  EXPECT_EQ(second, std::vector<float>(5, -7));
  {
    const std::lock_guard<std::mutex> lock(gate.mutex);
    gate.may_go = true;
    gate.changed.notify_all();
  }
  thread.join();
  EXPECT_EQ(one, BIE_OK);
  EXPECT_EQ(first, run(net, input, 1, {})[0]);
  EXPECT_EQ(call(second), BIE_OK);  // the refusal left no trace
  EXPECT_EQ(second, first);
  bie_context_free(context);
}

TEST(RuntimeThreads, ANetOfTwoOutputsIsNotRunForOne) {
  ReplayableRng rng;
  const std::vector<std::uint8_t> bytes = formats::net_bytes(conv_net(8, rng));
  Context net(SharedNet(bytes.data(), bytes.size()));
  EXPECT_THROW(net.run(floats(3 * 12 * 11, rng)), NetError);
}

}  // namespace
}  // namespace bie::runtime::test
