// Random numbers that can be had again: the seed is fixed, or BIE_TEST_SEED, and every test has its own stream.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace bie::kernels::test {

class ReplayableRng {
 public:
  ReplayableRng() : seed_(base_seed()), trace_("seed", 0, "replay with BIE_TEST_SEED=" + std::to_string(seed_)) {
    std::uint64_t stream = 1469598103934665603u;  // FNV-1a of the test's name: std::hash differs between libraries
    if (const auto* info = testing::UnitTest::GetInstance()->current_test_info())
      for (const char c : std::string(info->test_suite_name()) + "." + info->name())
        stream = (stream ^ static_cast<unsigned char>(c)) * 1099511628211u;
    engine_.seed(seed_ ^ stream);
  }

  /// Uniform in [lo, hi]; written out because the standard's distributions differ between libraries.
  std::int64_t between(std::int64_t lo, std::int64_t hi) {
    return lo + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(hi - lo + 1));
  }
  bool coin() { return between(0, 1) == 1; }

  template <class Container>
  auto one_of(const Container& values) {
    return *std::next(std::begin(values), between(0, static_cast<std::int64_t>(std::size(values)) - 1));
  }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return *(values.begin() + between(0, static_cast<std::int64_t>(values.size()) - 1));
  }

  std::vector<unsigned char> bytes(std::int64_t count) {
    std::vector<unsigned char> result(static_cast<std::size_t>(count));
    for (unsigned char& byte : result) byte = static_cast<unsigned char>(engine_());
    return result;
  }

 private:
  static std::uint64_t base_seed() {
    const char* text = std::getenv("BIE_TEST_SEED");
    return text == nullptr ? 20240607 : std::strtoull(text, nullptr, 10);
  }

  std::uint64_t seed_;
  testing::ScopedTrace trace_;  ///< every failure while this lives says how to see the same numbers again
  std::mt19937_64 engine_;
};

}  // namespace bie::kernels::test
