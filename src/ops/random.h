// The random numbers of kernels/arithmetic/random.h by their names here.
#pragma once

#include "kernels/arithmetic/random.h"

namespace bie::ops {

using kernels::mix;
using kernels::Stream;
using kernels::uniform;

}  // namespace bie::ops
