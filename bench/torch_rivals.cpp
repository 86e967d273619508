#include "bench/torch_rivals.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/_int_mm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <ATen/ops/randint.h>

#include <cstdio>

namespace bie::bench {
namespace {

c10::IValue call(const char* name, const char* overload, std::vector<c10::IValue> stack) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  op.callBoxed(&stack);
  return stack.at(0);
}

/// Adds the contender if it runs.
void add(Contender contender, std::vector<Contender>& contenders) {
  try {
    contender.run();
    contenders.push_back(std::move(contender));
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "bie_bench: without %s: %s\n", contender.name.c_str(), error.msg().c_str());
  }
}

template <class F>
void for_every_engine(const F& f) {
  for (const at::QEngine engine : at::Context::supportedQEngines())
    if (engine == at::QEngine::FBGEMM || engine == at::QEngine::X86 || engine == at::QEngine::ONEDNN) {
      at::globalContext().setQEngine(engine);
      f(std::string(toString(engine)));
    }
}

}  // namespace

void add_linear_rivals(const at::Tensor& x, const at::Tensor& w, std::vector<Contender>& contenders) {
  const at::Tensor bx = x.to(at::kBFloat16), bw = w.to(at::kBFloat16);
  add({"torch bfloat16", [bx, bw] { at::linear(bx, bw); }}, contenders);
  for_every_engine([&](const std::string& engine) {
    const at::Tensor codes = at::quantize_per_tensor(w, 0.02, 0, at::kQInt8);
    const c10::IValue packed = call("quantized::linear_prepack", "", {codes, c10::IValue()});
    add({"torch linear_dynamic " + engine,
         [x, packed] {
           call("quantized::linear_dynamic", "", {x, packed, false});
         }},
        contenders);
  });
  const at::Tensor cx = at::randint(-128, 127, x.sizes(), at::kChar), cw = at::randint(-128, 127, w.sizes(), at::kChar);
  add({"torch _int_mm", [cx, cw] { at::_int_mm(cx, cw.t()); }}, contenders);
}

void add_conv2d_rivals(const at::Tensor& x, const at::Tensor& w, std::int64_t stride, std::int64_t pad,
                       std::int64_t groups, std::vector<Contender>& contenders) {
  const auto last = at::MemoryFormat::ChannelsLast;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor lx = x.to(type).contiguous(last), lw = w.to(type).contiguous(last);
    add({type == at::kFloat ? "torch float32 channels_last" : "torch bfloat16 channels_last",
         [=] { at::conv2d(lx, lw, {}, stride, pad, 1, groups); }},
        contenders);
  }
  for_every_engine([&](const std::string& engine) {
    using List = c10::List<std::int64_t>;
    const at::Tensor codes = at::quantize_per_tensor(w, 0.02, 0, at::kQInt8);
    const c10::IValue packed =
        call("quantized::conv2d_prepack", "",
             {codes, c10::IValue(), List({stride, stride}), List({pad, pad}), List({1, 1}), groups});
    const at::Tensor qx = at::quantize_per_tensor(x, 0.05, 128, at::kQUInt8).contiguous(last);
    add({"torch quantized conv2d " + engine,
         [=] {
           call("quantized::conv2d", "new", {qx, packed, 0.5, 128});
         }},
        contenders);
    const at::Tensor fx = x.contiguous(last);
    add({"torch quantized conv2d " + engine + " of float32",
         [=] {
           const at::Tensor codes = at::quantize_per_tensor(fx, 0.05, 128, at::kQUInt8);
           call("quantized::conv2d", "new", {codes, packed, 0.5, 128}).toTensor().dequantize();
         }},
        contenders);
  });
}

}  // namespace bie::bench
