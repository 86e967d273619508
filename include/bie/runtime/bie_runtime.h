/* The C API of the runtime: nets that `bie export` wrote, run without torch and without Python.
 *
 *     bie_net* net;
 *     bie_context* context;
 *     if (bie_net_load("net.bie", &net) != BIE_OK) puts(bie_last_error());
 *     if (bie_context_create(net, NULL, &context) != BIE_OK) puts(bie_last_error());
 *     const void* inputs[] = {pixels};   // float32 [batch, channels, height, width]
 *     void* outputs[] = {logits};        // float32 [batch, classes]
 *     if (bie_run(context, batch, inputs, outputs) != BIE_OK) puts(bie_last_error());
 *
 * No function throws, prints or ends the process. Several threads may use a net at the same time. A context belongs to
 * one thread at a time: bie_run refuses a second caller with BIE_BUSY. */
#ifndef BIE_RUNTIME_H
#define BIE_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#if defined(BIE_RUNTIME_BUILD)
#define BIE_RUNTIME_API __attribute__((visibility("default")))
#else
#define BIE_RUNTIME_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* NOLINTBEGIN(modernize-use-using): a header of C */
typedef enum bie_status {
  BIE_OK = 0,
  BIE_BAD_FILE = 1,     /**< the file cannot be read, is damaged or holds no net that this build runs */
  BIE_BAD_ARGUMENT = 2, /**< a null pointer, a number out of its range, a net without such an input */
  BIE_BAD_VALUES = 3,   /**< the input holds NaN or infinity, or leads to them */
  BIE_NO_MEMORY = 4,
  BIE_FAILED = 5, /**< a setting of the machine, such as BIE_MAX_ISA, cannot be */
  BIE_BUSY = 6    /**< another thread is running this context */
} bie_status;

typedef struct bie_net bie_net;
typedef struct bie_context bie_context;

/** What one sample is: float32, dense, row-major. */
typedef struct bie_tensor {
  int32_t rank;     /**< 1: [features], 3: [channels, height, width] */
  int64_t sizes[3]; /**< those beyond the rank are 1 */
  int64_t elements; /**< their product */
} bie_tensor;

/** One range of a loop. */
typedef void (*bie_body)(void* task, int64_t begin, int64_t end);
/** Runs body(task, begin, end) on disjoint ranges that together cover [0, count), at most ceil(count / grain) of them,
 * and returns when all have ended. */
typedef void (*bie_parallel_for)(void* pool, int64_t count, int64_t grain, bie_body body, void* task);

/** Fields of 0 take what is said of them. */
typedef struct bie_options {
  int64_t max_batch;             /**< samples in one pass at most, fewer where caches are small. 0: 1 */
  int32_t threads;               /**< 0: 1. Results do not depend on it */
  bie_parallel_for parallel_for; /**< the caller's threads, `threads` of them; null: the context has its own */
  void* pool;                    /**< its first argument */
} bie_options;
/* NOLINTEND(modernize-use-using) */

/** "0.3.0" */
BIE_RUNTIME_API const char* bie_version(void);
/** Of this thread's last call that did not return BIE_OK: one sentence. */
BIE_RUNTIME_API const char* bie_last_error(void);

/** Maps the file and arranges its weights for this CPU. The file may be removed afterwards, and must not be written to.
 */
BIE_RUNTIME_API bie_status bie_net_load(const char* path, bie_net** net);
/** The same of bytes in memory, such as an array that `bie export --c-array` wrote; they have to stay. Bytes that do
 * not lie at a multiple of 64 are copied. */
BIE_RUNTIME_API bie_status bie_net_from_memory(const void* bytes, size_t size, bie_net** net);
/** Null is taken too. Contexts keep what they need of their net. */
BIE_RUNTIME_API void bie_net_free(bie_net* net);

BIE_RUNTIME_API int32_t bie_net_inputs(const bie_net* net);
BIE_RUNTIME_API int32_t bie_net_outputs(const bie_net* net);
BIE_RUNTIME_API bie_status bie_net_input(const bie_net* net, int32_t index, bie_tensor* tensor);
BIE_RUNTIME_API bie_status bie_net_output(const bie_net* net, int32_t index, bie_tensor* tensor);
/** The value of a key, "classes" for example (docs/spec/nets.md); null where the net has none. Lives as long as the
 * net.
 */
BIE_RUNTIME_API const char* bie_net_metadata(const bie_net* net, const char* key);
/** The net in lines of text: its nodes, their sizes and kernels. Lives as long as the net. */
BIE_RUNTIME_API const char* bie_net_summary(const bie_net* net);
/** Bytes of the weights as the net holds them, arranged for this CPU. */
BIE_RUNTIME_API int64_t bie_net_weight_bytes(const bie_net* net);

/** options may be null. All memory of a pass is taken here, but for what a thread's first pass takes for itself. */
BIE_RUNTIME_API bie_status bie_context_create(const bie_net* net, const bie_options* options, bie_context** context);
BIE_RUNTIME_API void bie_context_free(bie_context* context);
/** Bytes of everything that lies between the nodes. */
BIE_RUNTIME_API int64_t bie_context_bytes(const bie_context* context);

/** inputs[i] points to batch * elements floats, outputs[i] to room for as many. Nothing is allocated from a thread's
 * second call on, as long as no call has more samples than its first. On any status but BIE_OK the outputs hold
 * anything. A call that finds another thread inside the same context returns BIE_BUSY and leaves that thread's outputs
 * alone. */
BIE_RUNTIME_API bie_status bie_run(bie_context* context, int64_t batch, const void* const* inputs,
                                   void* const* outputs);

#ifdef __cplusplus
}
#endif
#endif
