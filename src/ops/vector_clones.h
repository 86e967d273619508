// A loop compiled for two instruction sets.
#pragma once

/// Before a function: compiled for AVX2 and for the baseline, chosen as the program loads. Both give the same bits,
/// because the build fuses no multiply and add. For loops over whole tensors that are no kernel; it must be no
/// template. Not under ThreadSanitizer: the choice is made before its runtime is.
#if defined(__x86_64__) && defined(__linux__) && !defined(__SANITIZE_THREAD__)
#define BIE_VECTOR_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define BIE_VECTOR_CLONES
#endif
