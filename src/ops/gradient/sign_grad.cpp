#include "ops/gradient/sign_grad.h"

#include <algorithm>
#include <cmath>

#include "ops/backend/backend.h"
#include "ops/backend/gradients.h"

namespace bie::ops {
namespace {

constexpr const char* op_name = "backward";

}  // namespace

at::Tensor sign_values(const at::Tensor& t, const Scale& scale, at::ScalarType dtype) {
  return backend_of(op_name, t).gradients.sign_values(t, scale, dtype);
}

Factor factor_of_signs(const at::Tensor& t) {
  const auto values = [](const at::Tensor& some, at::ScalarType dtype, const Scale& by) {
    return sign_values(some, by, dtype);
  };
  const auto codes = [t]() -> Codes {
    if (t.scalar_type() == at::kChar) return {t, /*signs=*/true};
    return {sign_values(t, unit_scale, at::kChar)};
  };
  return {t, values, codes};
}

kernels::InputRule sign_rule(const at::Tensor& xs) {
  return {true, {}, {false, false, std::sqrt(static_cast<double>(std::max<std::int64_t>(1, xs.numel())))}};
}

}  // namespace bie::ops
