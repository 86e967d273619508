// torch's threads for the CPU's half of the operators.
#pragma once

#include "bie/ops.h"
#include "bie/ops/threads.h"
