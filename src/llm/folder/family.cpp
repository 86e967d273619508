#include "llm/folder/family.h"

#include <algorithm>
#include <iterator>

#include "bie/formats/error.h"

namespace bie::llm::folder {
namespace {

constexpr Family all[] = {
    {.model_type = "llama", .architecture = "llama", .activation = "silu"},
    {.model_type = "mistral", .architecture = "llama", .activation = "silu", .has_windows = true},
    {.model_type = "qwen2", .architecture = "qwen2", .activation = "silu"},
    {.model_type = "qwen3", .architecture = "qwen3", .activation = "silu"},
    {.model_type = "gemma2",
     .architecture = "gemma2",
     .activation = "gelu_pytorch_tanh",
     .has_end_norms = true,
     .is_tied = true},
    {.model_type = "gemma3_text",
     .architecture = "gemma3",
     .activation = "gelu_pytorch_tanh",
     .has_end_norms = true,
     .is_tied = true},
    {.model_type = "bitnet", .architecture = "bitnet-b1.58", .activation = "relu2", .other_activation = "silu"},
};

struct Name {
  std::string_view gguf, folder;
};

constexpr Name outer[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
};
constexpr Name inner[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"attn_sub_norm", "self_attn.attn_sub_norm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},       {"ffn_sub_norm", "mlp.ffn_sub_norm"},
};
constexpr Name one_norm[] = {{"ffn_norm", "post_attention_layernorm"}};
constexpr Name end_norms[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};
constexpr std::string_view gguf_block = "blk.", folder_block = "model.layers.";

/// The other name of a part of a block or, where `is_inner` is not set, of what lies around the blocks.
std::optional<std::string_view> other_name(const Family& family, std::string_view part, bool is_inner,
                                           std::string_view Name::*from, std::string_view Name::*to) {
  const auto among = [&](const auto& names) -> std::optional<std::string_view> {
    const auto found = std::find_if(std::begin(names), std::end(names), [&](const Name& n) { return n.*from == part; });
    if (found == std::end(names)) return std::nullopt;
    return *found.*to;
  };
  if (!is_inner) return among(outer);
  if (const auto found = among(inner)) return found;
  return family.has_end_norms ? among(end_norms) : among(one_norm);
}

/// Cuts a name into block, part and the end "weight" or "bias" and puts it together in the other language.
std::optional<std::string> translated(const Family& family, std::string_view name, std::string_view block,
                                      std::string_view other_block, std::string_view Name::*from,
                                      std::string_view Name::*to) {
  std::string_view index, part = name.substr(0, std::min(name.rfind('.'), name.size()));
  if (part.size() == name.size()) return std::nullopt;
  const std::string_view end = name.substr(part.size());
  const bool is_inner = part.substr(0, block.size()) == block;
  if (is_inner) {
    part.remove_prefix(block.size());
    const std::size_t dot = part.find('.');
    index = part.substr(0, dot);
    if (dot == std::string_view::npos || index.find_first_not_of("0123456789") != std::string_view::npos)
      return std::nullopt;
    part.remove_prefix(dot + 1);
  }
  const std::optional<std::string_view> other = other_name(family, part, is_inner, from, to);
  if (!other) return std::nullopt;
  return is_inner ? formats::joined(other_block, index, ".", *other, end) : formats::joined(*other, end);
}

}  // namespace

const Family* family(std::string_view model_type) {
  const auto* const found =
      std::find_if(std::begin(all), std::end(all), [&](const Family& f) { return f.model_type == model_type; });
  return found == std::end(all) ? nullptr : found;
}

std::string_view model_types() {
  static const std::string names = [] {
    std::string text;
    for (const Family& f : all) text += (text.empty() ? "" : ", ") + std::string(f.model_type);
    return text;
  }();
  return names;
}

std::optional<std::string> gguf_name(const Family& family, std::string_view name) {
  return translated(family, name, folder_block, gguf_block, &Name::folder, &Name::gguf);
}

std::string folder_name(const Family& family, std::string_view name) {
  return translated(family, name, gguf_block, folder_block, &Name::gguf, &Name::folder).value_or(std::string(name));
}

}  // namespace bie::llm::folder
