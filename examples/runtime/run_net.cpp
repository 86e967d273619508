// A camera-like loop: one net, one context, image after image. run_net NET
//   c++ -std=c++17 run_net.cpp -I PREFIX/include -L PREFIX/lib -lbie_runtime -o run_net
#include <bie/runtime/net.h>

#include <algorithm>
#include <cstdio>

int main(int argc, char** argv) try {
  const bie::runtime::SharedNet net(argc > 1 ? argv[1] : "net.bie");
  bie::runtime::Context context(net);
  std::vector<float> image(static_cast<std::size_t>(net.input().elements));
  std::vector<float> logits(static_cast<std::size_t>(net.output().elements));
  for (int frame = 0; frame < 5; ++frame) {
    std::fill(image.begin(), image.end(), 0.2f * static_cast<float>(frame));  // where the camera's image would be
    context.run(image.data(), 1, logits.data());
    const auto largest = std::max_element(logits.begin(), logits.end());
    std::printf("frame %d: class %td\n", frame, largest - logits.begin());
  }
} catch (const bie::runtime::NetError& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
