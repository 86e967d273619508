#include "llm/folder/family.h"

#include <algorithm>
#include <iterator>

#include "bie/formats/error.h"

namespace bie::llm::folder {
namespace {

constexpr PartName one_norm[] = {{"ffn_norm", "post_attention_layernorm"}};
constexpr PartName end_norms[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};
constexpr PartName sub_norms[] = {
    {"ffn_norm", "post_attention_layernorm"},
    {"attn_sub_norm", "self_attn.attn_sub_norm"},
    {"ffn_sub_norm", "mlp.ffn_sub_norm"},
};
constexpr PartName sub_norms_of_1bitllm[] = {
    {"ffn_norm", "post_attention_layernorm"},
    {"attn_sub_norm", "self_attn.inner_attn_ln"},
    {"ffn_sub_norm", "mlp.ffn_layernorm"},
};

constexpr Family all[] = {
    {.model_type = "llama",
     .class_name = "LlamaForCausalLM",
     .architecture = "llama",
     .activation = "silu",
     .norms = one_norm},
    {.model_type = "mistral",
     .class_name = "MistralForCausalLM",
     .architecture = "llama",
     .activation = "silu",
     .has_windows = true,
     .norms = one_norm},
    {.model_type = "qwen2",
     .class_name = "Qwen2ForCausalLM",
     .architecture = "qwen2",
     .activation = "silu",
     .norms = one_norm},
    {.model_type = "qwen3",
     .class_name = "Qwen3ForCausalLM",
     .architecture = "qwen3",
     .activation = "silu",
     .norms = one_norm},
    {.model_type = "gemma2",
     .class_name = "Gemma2ForCausalLM",
     .architecture = "gemma2",
     .activation = "gelu_pytorch_tanh",
     .has_end_norms = true,
     .is_tied = true,
     .norms = end_norms,
     .defaults = R"({"hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
                     "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096,
                     "query_pre_attn_scalar": 256, "max_position_embeddings": 8192})"},
    {.model_type = "gemma3_text",
     .whole_model_type = "gemma3",
     .class_name = "Gemma3ForCausalLM",
     .architecture = "gemma3",
     .activation = "gelu_pytorch_tanh",
     .has_end_norms = true,
     .is_tied = true,
     .norms = end_norms,
     .defaults = R"({"hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
                     "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096,
                     "query_pre_attn_scalar": 256, "max_position_embeddings": 131072, "rope_theta": 1000000})"},
    {.model_type = "bitnet",
     .class_name = "BitNetForCausalLM",
     .architecture = "bitnet-b1.58",
     .activation = "relu2",
     .other_activation = "silu",
     .norms = sub_norms},
    {.model_type = "llama",
     .class_name = "BitnetForCausalLM",
     .is_told_by_class = true,
     .architecture = "bitnet",
     .activation = "silu",
     .norms = sub_norms_of_1bitllm},
};

constexpr PartName outer[] = {
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
};
constexpr PartName inner[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},      {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};
constexpr std::string_view gguf_block = "blk.", folder_block = "model.layers.";

/// The other name of a part of a block or, where `is_inner` is not set, of what lies around the blocks.
std::optional<std::string_view> other_name(const Family& family, std::string_view part, bool is_inner,
                                           std::string_view PartName::*from, std::string_view PartName::*to) {
  const auto among = [&](const auto& names) -> std::optional<std::string_view> {
    const auto found =
        std::find_if(std::begin(names), std::end(names), [&](const PartName& n) { return n.*from == part; });
    if (found == std::end(names)) return std::nullopt;
    return *found.*to;
  };
  if (!is_inner) return among(outer);
  if (const auto found = among(inner)) return found;
  return among(family.norms);
}

/// Cuts a name into block, part and the end "weight" or "bias" and puts it together in the other language.
std::optional<std::string> translated(const Family& family, std::string_view name, std::string_view block,
                                      std::string_view other_block, std::string_view PartName::*from,
                                      std::string_view PartName::*to) {
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

const Family* family(std::string_view model_type, std::string_view class_name) {
  const auto first = [](const auto& fits) {
    const auto* const found = std::find_if(std::begin(all), std::end(all), fits);
    return found == std::end(all) ? nullptr : found;
  };
  const Family* const of_class =
      first([&](const Family& f) { return f.is_told_by_class && f.class_name == class_name; });
  if (of_class != nullptr || model_type.empty()) return of_class;
  return first([&](const Family& f) {
    return !f.is_told_by_class && (f.model_type == model_type || f.whole_model_type == model_type);
  });
}

const Family* family_of(std::string_view architecture, bool has_windows) {
  const Family* found = nullptr;
  for (const Family& f : all)
    if (f.architecture == architecture && (found == nullptr || f.has_windows == has_windows)) found = &f;
  return found;
}

std::string_view model_types() {
  static const std::string names = [] {
    std::string text;
    for (const Family& f : all)
      for (const std::string_view type : {f.is_told_by_class ? f.class_name : f.model_type, f.whole_model_type})
        if (!type.empty()) text += (text.empty() ? "" : ", ") + std::string(type);
    return text;
  }();
  return names;
}

std::string text_name(const Family& family, std::string_view name) {
  constexpr std::string_view part = "language_model.";
  const std::size_t at = family.whole_model_type.empty() ? std::string_view::npos : name.find(part);
  if (at == std::string_view::npos) return std::string(name);
  return formats::joined(name.substr(0, at), name.substr(at + part.size()));
}

bool sees_pictures(const Family& family, std::string_view name) {
  if (name.starts_with("model.")) name.remove_prefix(6);
  return !family.whole_model_type.empty() &&
         (name.starts_with("vision_tower.") || name.starts_with("multi_modal_projector."));
}

std::optional<std::string> gguf_name(const Family& family, std::string_view name) {
  return translated(family, name, folder_block, gguf_block, &PartName::folder, &PartName::gguf);
}

std::string folder_name(const Family& family, std::string_view name) {
  return translated(family, name, gguf_block, folder_block, &PartName::gguf, &PartName::folder)
      .value_or(std::string(name));
}

}  // namespace bie::llm::folder
