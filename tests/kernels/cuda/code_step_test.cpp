// A step of codes whose place is kept: the bits of the CPU.
#include "bie/kernels/cuda/code_step.h"

#include <vector>

#include "tests/kernels/code_step_case.h"
#include "tests/kernels/cuda/device_memory.h"

namespace bie::kernels::test {
namespace {

/// A vector's copy on the device, whose bytes come back.
template <class T>
class Mirror {
 public:
  explicit Mirror(std::vector<T>& host) : host_(host), device_(host) {}
  T* get() const { return host_.empty() ? nullptr : device_.template as<T>(); }
  void fetch() const { host_ = device_.template values<T>(); }

 private:
  std::vector<T>& host_;
  DeviceBytes device_;
};

Status step_there(CodeStepCase& c) {
  const Mirror words(c.words);
  const Mirror rest(c.rest), l8(c.l8);
  const Mirror m8(c.m8), scales(c.scales.bytes), zeros(c.float_zeros.bytes), grad(c.grad.bytes);
  const Mirror l(c.l), m(c.m), largest(c.largest), a(c.scale_l), b(c.scale_m);
  const Mirror whole(c.whole_zeros);
  CodeStep o = c.all();
  o.words = words.get();
  o.rest = rest.get();
  o.scales = scales.get();
  o.zeros = c.offset == Offset::zero ? static_cast<void*>(whole.get()) : zeros.get();
  o.grad = grad.get();
  o.l = c.small ? static_cast<void*>(l8.get()) : l.get();
  o.m = c.small ? static_cast<void*>(m8.get()) : m.get();
  o.largest = c.small ? largest.get() : nullptr;
  o.scale_l = a.get();
  o.scale_m = b.get();
  const Status status = cuda::code_steps(&o, 1, default_queue);
  EXPECT_TRUE(device_is_well());
  words.fetch();
  for (const auto* bytes : {&rest, &l8}) bytes->fetch();
  for (const auto* bytes : {&m8, &scales, &zeros}) bytes->fetch();
  for (const auto* floats : {&l, &m, &largest, &a, &b}) floats->fetch();
  return status;
}

TEST(CudaCodeStep, TheBitsOfTheCpu) {
  BIE_NEEDS_GPU();
  ReplayableRng rng;
  for (const int bits : {1, 2, 3, 4, 5, 6, 8})
    for (const Offset offset : {Offset::none, Offset::value, Offset::zero})
      for (int form = 0; form < 8; ++form) {
        const CodeStepCase c = some_step(bits, offset, form % 2 != 0, form / 2 % 2 != 0, form / 4 != 0, rng);
        CodeStepCase wanted = c, found = c;
        ASSERT_EQ(wanted.step(code_step_table().back(), serial()), Status::ok);
        ASSERT_EQ(step_there(found), Status::ok) << cuda::last_error();
        expect_same(found, wanted);
        if (HasFailure()) return;
      }
}

TEST(CudaCodeStep, WrongArguments) {
  BIE_NEEDS_GPU();
  ReplayableRng rng;
  CodeStep o = some_step(4, Offset::zero, true, true, true, rng).all();
  o.bits = 7;
  EXPECT_EQ(cuda::code_steps(&o, 1, default_queue), Status::bad_shape);
  o.bits = 4;
  o.grad_dtype = Dtype::s8;
  EXPECT_EQ(cuda::code_steps(&o, 1, default_queue), Status::bad_dtype);
}

}  // namespace
}  // namespace bie::kernels::test
