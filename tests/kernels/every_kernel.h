// Helpers of the sweeps over tables: the kernels this run may use, memory for packed weights, guarded output.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "bie/kernels/isa.h"
#include "bie/kernels/table.h"

namespace bie::kernels {

/// So that gtest prints a status as its phrase; gtest looks in the namespace of the type.
inline void PrintTo(Status status, std::ostream* out) { *out << describe(status); }

namespace test {

/// Whether this run checks the kernel. Without BIE_MAX_ISA it checks all that the CPU has. Under that cap it checks
/// those of the capped instruction set, or of the table's best one where the set has none: weaker kernels are checked
/// under caps of their own.
template <class Kernel>
bool is_checked(const Kernel& kernel, const Table<Kernel>& table) {
  const auto usable = [](const Kernel& k) { return host().isas.has(k.isa); };
  const char* cap = std::getenv("BIE_MAX_ISA");
  if (cap == nullptr || *cap == '\0') return usable(kernel);
  const auto capped = [&](const Kernel& k) { return usable(k) && std::strcmp(name(k.isa), cap) == 0; };
  const Kernel* checked = std::find_if(table.begin(), table.end(), capped);
  if (checked == table.end()) checked = std::find_if(table.begin(), table.end(), usable);
  return checked != table.end() && kernel.isa == checked->isa;
}

/// Calls check(kernel) for every kernel of the table that this run checks. The kernels that ran are named in the test's
/// property "kernels" and in every failure.
template <class Kernel, class Check>
void for_every_kernel(const Table<Kernel>& table, const Check& check) {
  ASSERT_EQ(host().status, Status::ok) << describe(host().status);
  std::string ran;
  for (const Kernel& kernel : table) {
    if (!is_checked(kernel, table)) continue;
    SCOPED_TRACE(kernel.name);
    check(kernel);
    ran += std::string(ran.empty() ? "" : " ") + kernel.name;
    if (testing::Test::HasFatalFailure()) return;
  }
  ASSERT_NE(ran, "") << "no kernel ran";
  testing::Test::RecordProperty("kernels", ran);
}

/// Memory of exactly the size asked for, so that AddressSanitizer sees the first byte too many, aligned to 64 bytes
/// and full of rubbish, so that nobody relies on zeros.
class PackedMemory {
 public:
  explicit PackedMemory(std::size_t bytes) {
    void* memory = nullptr;
    if (posix_memalign(&memory, 64, bytes == 0 ? 1 : bytes) != 0) std::abort();
    std::memset(memory, 0xcd, bytes);
    memory_.reset(memory);
  }
  void* get() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
};

/// Output bytes between two guards. Rows write into data(); untouched() tells whether anything was written at all.
class GuardedBytes {
 public:
  explicit GuardedBytes(std::size_t bytes) : all_(bytes + 2 * guard, filler) {}
  static std::vector<unsigned char> blank(std::size_t bytes) { return std::vector<unsigned char>(bytes, filler); }

  unsigned char* data() { return all_.data() + guard; }
  unsigned char* all_data() { return all_.data(); }  ///< guards included
  const std::vector<unsigned char>& all() const { return all_; }
  std::vector<unsigned char> bytes() const { return {all_.begin() + guard, all_.end() - guard}; }
  bool untouched() const { return bytes() == blank(bytes().size()) && guards_intact(); }
  bool guards_intact() const {
    for (std::size_t i = 0; i < guard; ++i)
      if (all_[i] != filler || all_[all_.size() - 1 - i] != filler) return false;
    return true;
  }

 private:
  static constexpr std::size_t guard = 128;
  static constexpr unsigned char filler = 0xa5;
  std::vector<unsigned char> all_;
};

/// Byte equality that names the first byte that differs.
inline testing::AssertionResult same_bytes(const std::vector<unsigned char>& expected, const GuardedBytes& actual) {
  if (!actual.guards_intact()) return testing::AssertionFailure() << "bytes outside the output were written";
  const std::vector<unsigned char> found = actual.bytes();
  if (found == expected) return testing::AssertionSuccess();
  std::size_t i = 0;
  while (i < expected.size() && i < found.size() && found[i] == expected[i]) ++i;
  return testing::AssertionFailure() << "byte " << i << " of " << expected.size() << " is " << int{found[i]} << ", not "
                                     << int{expected[i]};
}

}  // namespace test
}  // namespace bie::kernels
