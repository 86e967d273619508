// Floats as blocks of GGUF's K-quants: codes, and for each group of them a small scale and offset that are multiples of
// two 16-bit floats of the block.
// Source: quantize_row_q2_K_ref and its like of ggml's ggml-quants.c; docs/spec/files.md#writing.
#pragma once

#include <cstdint>

namespace bie::formats {

/// Codes [256] of as many finite floats; their scales go into the block `to`, which is 0 before.
/// @param weights  of the squares of errors, [256] numbers above 0; null: those of ggml.
/// @return the largest size of a 16-bit float of the block before it is rounded to one.
using RoundKBlock = float (*)(const float* x, const float* weights, std::uint8_t* codes, std::uint8_t* to);

float round_q2_k(const float* x, const float* weights, std::uint8_t* codes, std::uint8_t* to);
float round_q3_k(const float* x, const float* weights, std::uint8_t* codes, std::uint8_t* to);
float round_q4_k(const float* x, const float* weights, std::uint8_t* codes, std::uint8_t* to);
float round_q5_k(const float* x, const float* weights, std::uint8_t* codes, std::uint8_t* to);
float round_q6_k(const float* x, const float* weights, std::uint8_t* codes, std::uint8_t* to);

}  // namespace bie::formats
