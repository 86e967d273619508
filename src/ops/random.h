// The random numbers of kernels/random.h by their names here.
#pragma once

#include "kernels/random.h"

namespace bie::ops {

using kernels::mix;
using kernels::Stream;
using kernels::uniform;

}  // namespace bie::ops
