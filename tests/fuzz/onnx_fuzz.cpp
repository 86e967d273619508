// Any bytes as an ONNX file: one sentence, or a net whose every node fits.
#include "bie/formats/error.h"
#include "bie/onnx/onnx_import.h"
#include "bie/runtime/net_builder.h"
#include "runtime/graph.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace bie;
  try {
    const formats::NetFile net = onnx::import_onnx("here", data, static_cast<std::int64_t>(size));
    runtime::check_graph(net);
    runtime::check_graph(runtime::folded(net));
  } catch (const formats::Error& error) {
    const std::string sentence = error.what();
    formats::fuzz::require(!sentence.empty() && sentence.find('\n') == std::string::npos);
  }
  return 0;
}
