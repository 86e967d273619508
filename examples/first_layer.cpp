#include <ATen/Parallel.h>
#include <ATen/ops/randn.h>

#include <cstdio>

#include "bie/layers/linear.h"
#include "bie/optim/diode_mix.h"
#include "bie/optim/parameters.h"
#include "bie/train/passive_threads.h"

BIE_PASSIVE_THREADS;

int main() {
  at::set_num_threads(1);                     // steps this small are not worth sharing
  bie::layers::BinaryLinear layer(1000, 37);  // any sizes
  layer->prepare_params();                    // the weight is int8 from here on
  bie::optim::DiodeMix optimizer({{bie::optim::parameters(*layer), {.lr = 1e-2, .beta2 = 0.999}}});

  const at::Tensor x = at::randn({64, 1000}), wanted = at::randn({64, 37}).sign();
  for (int step = 0; step < 100; ++step) {
    optimizer.zero_grad();
    at::Tensor loss = (layer->forward(x) - wanted).square().mean();
    loss.backward();  // writes the integer gradient of the int8 weight
    optimizer.step();
    if (step % 33 == 0) std::printf("step %2d: loss %.3f\n", step, loss.item<double>());
  }
  layer->generate_quantized_weight(/*qweight_only=*/true);  // one bit a weight remains
  layer->eval();
  std::printf("%zu bytes of weight\n", layer->qweight.nbytes());
}
