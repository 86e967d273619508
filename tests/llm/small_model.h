// A random llama of a few thousand numbers as a GGUF file.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bie/formats/gguf_writer.h"
#include "tests/kernels/replayable_rng.h"

namespace bie::llm::test {

/// Matrices are Q8_0, heads have 16 elements, 2 of 4 share keys and values; the vocabulary has 40 tokens.
inline void save_small_model(const std::string& path, std::int64_t layers, std::uint64_t context = 300) {
  using formats::GgufValue;
  using Type = formats::GgufValueType;
  kernels::test::ReplayableRng rng;
  std::map<std::string, GgufValue> metadata = {{"general.architecture", {Type::string, std::string("llama")}},
                                               {"llama.attention.layer_norm_rms_epsilon", {Type::f32, 1e-5}}};
  const std::pair<const char*, std::uint64_t> sizes[] = {{"block_count", static_cast<std::uint64_t>(layers)},
                                                         {"embedding_length", 64},
                                                         {"feed_forward_length", 96},
                                                         {"context_length", context},
                                                         {"attention.head_count", 4},
                                                         {"attention.head_count_kv", 2}};
  for (const auto& [name, size] : sizes) metadata[std::string("llama.") + name] = {Type::u32, size};

  std::vector<std::vector<std::uint8_t>> bytes;
  std::vector<formats::GgufOutput> tensors;
  const auto add = [&](const std::string& name, const std::vector<std::int64_t>& shape) {
    const bool is_matrix = shape.size() == 2;
    std::vector<float> values(static_cast<std::size_t>(shape[0] * (is_matrix ? shape[1] : 1)));
    for (float& v : values) v = static_cast<float>(rng.between(-100, 100)) * 0.003f + (is_matrix ? 0.0f : 1.0f);
    const formats::GgufType* const type = formats::gguf_type(is_matrix ? "Q8_0" : "F32");
    if (is_matrix) {
      bytes.push_back(formats::gguf_rounded("a model", *type, values.data(), shape[0], shape[1]));
    } else {
      bytes.emplace_back(4 * values.size());
      std::memcpy(bytes.back().data(), values.data(), bytes.back().size());
    }
    tensors.push_back(
        {name + ".weight", shape, type, bytes.back().data(), static_cast<std::int64_t>(bytes.back().size())});
  };
  add("token_embd", {40, 64});
  add("output_norm", {64});
  for (std::int64_t i = 0; i < layers; ++i) {
    const std::string at = formats::joined("blk.", i, ".");
    add(at + "attn_norm", {64});
    add(at + "ffn_norm", {64});
    add(at + "attn_q", {64, 64});
    add(at + "attn_k", {32, 64});
    add(at + "attn_v", {32, 64});
    add(at + "attn_output", {64, 64});
    add(at + "ffn_gate", {96, 64});
    add(at + "ffn_up", {96, 64});
    add(at + "ffn_down", {64, 96});
  }
  formats::save_gguf(path, metadata, tensors);
}

}  // namespace bie::llm::test
