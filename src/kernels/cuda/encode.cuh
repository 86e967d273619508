// Rows, images and filters to rows of codes in device memory.
#pragma once

#include "kernels/cuda/codes.cuh"

namespace bie::kernels::cuda {

/// Encodes m rows of k elements to `out`, `stride` bytes apart. 1-bit only: their popcounts follow. `flags` (most_flags
/// of them, or null where nobody asks) takes one flag per block; `count` how many blocks there were.
Status encode_rows(const Rows& x, std::int64_t m, std::int64_t k, Format format, void* out, std::int64_t stride,
                   int* flags, int* count, const Queue& queue);

/// Encodes the n rows of a weight. The next kernel may read them without waiting for this one.
Status encode_weight(const Rows& weight, std::int64_t n, std::int64_t k, Format format, void* out, std::int64_t stride,
                     int* flags, int* count, const Queue& queue);

/// Encodes an image to [batch, in_h, in_w] rows of in_c elements, without popcounts.
Status encode_image(const Conv2dShape& s, const Image& x, Format format, void* out, int* flags, int* count,
                    const Queue& queue);

/// Encodes a filter to out_c rows of taps, each tap a row of in_c elements. 1-bit only: the rows' popcounts follow.
Status encode_filter(const Filter& weight, const Conv2dShape& s, Format format, void* out, int* flags, int* count,
                     const Queue& queue);

}  // namespace bie::kernels::cuda
