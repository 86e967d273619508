#include "bie/kernels/exact_math.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/arithmetic/exponential.h"
#include "kernels/arithmetic/hyperbolic_tangent.h"

namespace bie::kernels {
namespace {

double from_bits(std::uint64_t bits) {
  double value;
  std::memcpy(&value, &bits, 8);
  return value;
}

std::uint64_t bits_of(double value) {
  std::uint64_t bits;
  std::memcpy(&bits, &value, 8);
  return bits;
}

/// The whole number next to x, half to even, for |x| < 2^51.
double nearest(double x) { return (x + 0x1.8p52) - 0x1.8p52; }

/// x less the nearest multiple k of pi / 2, and k mod 4.
double within_a_quarter(double x, int* quarter) {
  const double k = nearest(x * 0x1.45f306dc9c883p-1);
  double r = std::fma(k, -0x1.921fb54442d18p+0, x);
  r = std::fma(k, -0x1.1a62633145c07p-54, r);
  *quarter = static_cast<int>(static_cast<std::int64_t>(k) & 3);
  return r;
}

/// sum of c[i] * x^i, by Horner.
template <int count>
double polynomial(const double (&c)[count], double x) {
  double sum = c[count - 1];
  for (int i = count - 2; i >= 0; --i) sum = std::fma(sum, x, c[i]);
  return sum;
}

/// The series of sine and cosine, for |r| <= pi / 4; each coefficient is one rounded division.
double sine(double r) {
  constexpr double c[] = {1.0 / 6,
                          -1.0 / 120,
                          1.0 / 5040,
                          -1.0 / 362880,
                          1.0 / 39916800.,
                          -1.0 / 6227020800.0,
                          1.0 / 1307674368000.0,
                          -1.0 / 355687428096000.0};
  const double square = r * r;
  return std::fma(-(r * square), polynomial(c, square), r);
}

double cosine(double r) {
  constexpr double c[] = {-1.0 / 2,         1.0 / 24,          -1.0 / 720,           1.0 / 40320,
                          -1.0 / 3628800.0, 1.0 / 479001600.0, -1.0 / 87178291200.0, 1.0 / 20922789888000.0};
  const double square = r * r;
  return std::fma(square, polynomial(c, square), 1.0);
}

}  // namespace

float exact_exp(float x) { return exponential(x); }
float exact_tanh(float x) { return hyperbolic_tangent(x); }

double exact_exp(double x) {
  const double n = nearest(x * 0x1.71547652b82fep+0);
  double r = std::fma(n, -0x1.62e42fefa39efp-1, x);
  r = std::fma(n, -0x1.abc9e3b39803fp-56, r);
  constexpr double c[] = {
      1.0,        1.0,         1.0 / 2,      1.0 / 6,       1.0 / 24,       1.0 / 120,       1.0 / 720,
      1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0};
  return polynomial(c, r) * from_bits(static_cast<std::uint64_t>(static_cast<std::int64_t>(n) + 1023) << 52);
}

double exact_log(double x) {
  // x = 2^e * m with m from sqrt(1/2) on, and log m = 2 * (s + s^3 / 3 + ...) of s = (m - 1) / (m + 1).
  const std::uint64_t bits = bits_of(x);
  auto e = static_cast<std::int64_t>(bits >> 52) - 1023;
  double m = from_bits((bits & 0xfffffffffffff) | std::uint64_t{1023} << 52);
  if (m > 0x1.6a09e667f3bcdp+0) {
    m = m * 0.5;
    ++e;
  }
  const double s = (m - 1) / (m + 1), square = s * s;
  constexpr double c[] = {1.0,      1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9, 1.0 / 11,
                          1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21};
  return std::fma(static_cast<double>(e), 0x1.62e42fefa39efp-1, 2 * s * polynomial(c, square));
}

double exact_sin(double x) {
  int quarter = 0;
  const double r = within_a_quarter(x, &quarter);
  const double value = quarter % 2 == 0 ? sine(r) : cosine(r);
  return quarter < 2 ? value : -value;
}

double exact_cos(double x) {
  int quarter = 0;
  const double r = within_a_quarter(x, &quarter);
  const double value = quarter % 2 == 0 ? cosine(r) : sine(r);
  return quarter == 0 || quarter == 3 ? value : -value;
}

}  // namespace bie::kernels
