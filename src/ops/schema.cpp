// Every operator's schema, and nothing else.
#include <torch/library.h>

TORCH_LIBRARY(bie, m) {
  m.def(
      "binary_linear(Tensor x, Tensor weight, Tensor scale_a, Tensor scale_w, Tensor? bias_a=None, *, "
      "int? in_features=None, Tensor? anchor=None, Tensor? panels=None, int kernel_id=0) -> Tensor");
  m.def(
      "q8_linear(Tensor x, Tensor weight, Tensor scale_a, Tensor? scale_w, Tensor? bias_a=None, *, "
      "int? in_features=None, float eps=1e-5, bool reference_grad=False, Tensor? anchor=None, Tensor? panels=None) -> "
      "Tensor");
  m.def(
      "q4_linear(Tensor x, Tensor weight, Tensor scale_a, Tensor? scale_w, Tensor? bias_a=None, *, "
      "int? in_features=None, float eps=1e-5, bool reference_grad=False, Tensor? anchor=None, Tensor? panels=None) -> "
      "Tensor");
  m.def(
      "binary_conv2d(Tensor x, Tensor weight, Tensor scale_a, Tensor scale_w, Tensor? bias_a=None, *, int[2] stride=1, "
      "int[2] padding=0, int[2] dilation=1, int groups=1, int padding_value=-1, int[2]? kernel_size=None, Tensor? "
      "anchor=None, Tensor? panels=None) -> Tensor");
  m.def(
      "q8_conv2d(Tensor x, Tensor weight, Tensor scale_a, Tensor? scale_w, Tensor? bias_a=None, *, int[2] stride=1, "
      "int[2] padding=0, int[2] dilation=1, int groups=1, int[2]? kernel_size=None, float eps=1e-5, "
      "bool reference_grad=False, Tensor? anchor=None, Tensor? panels=None) -> Tensor");
  m.def(
      "q4_conv2d(Tensor x, Tensor weight, Tensor scale_a, Tensor? scale_w, Tensor? bias_a=None, *, int[2] stride=1, "
      "int[2] padding=0, int[2] dilation=1, int groups=1, int[2]? kernel_size=None, float eps=1e-5, "
      "bool reference_grad=False, Tensor? anchor=None, Tensor? panels=None) -> Tensor");

  m.def("binary_matmul(Tensor x, Tensor y, Tensor x_clip, Tensor y_clip) -> Tensor");
  m.def(
      "q8_matmul(Tensor x, Tensor y, Tensor x_clip, Tensor y_clip, *, float eps=1e-5, bool reference_grad=False) -> "
      "Tensor");
  m.def(
      "q4_matmul(Tensor x, Tensor y, Tensor x_clip, Tensor y_clip, *, float eps=1e-5, bool reference_grad=False) -> "
      "Tensor");

  // Backward passes: gradients of x, the weight, scale_a and bias_a; undefined where not wanted. weight_grad: the dtype
  // of the weight's, int8 by the rule of int8_grad; None = not wanted.
  m.def(
      "binary_linear_backward(Tensor g, Tensor x, Tensor weight, Tensor scale_a, Tensor scale_w, Tensor? bias_a, *, "
      "ScalarType? weight_grad) -> (Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "q8_linear_backward(Tensor g, Tensor x, Tensor weight, Tensor scale_a, Tensor? scale_w, Tensor? bias_a, *, "
      "float eps, bool reference_grad, bool plain_codes, ScalarType? weight_grad) -> (Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "q4_linear_backward(Tensor g, Tensor x, Tensor weight, Tensor scale_a, Tensor? scale_w, Tensor? bias_a, *, "
      "float eps, bool reference_grad, bool plain_codes, ScalarType? weight_grad) -> (Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "binary_conv2d_backward(Tensor g, Tensor x, Tensor weight, Tensor scale_a, Tensor scale_w, Tensor? bias_a, *, "
      "int[2] stride, int[2] padding, int[2] dilation, int groups, int padding_value, int[2] kernel_size, "
      "ScalarType? weight_grad) -> (Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "q8_conv2d_backward(Tensor g, Tensor x, Tensor weight, Tensor scale_a, Tensor? scale_w, Tensor? bias_a, *, "
      "int[2] stride, int[2] padding, int[2] dilation, int groups, int[2] kernel_size, float eps, bool reference_grad, "
      "ScalarType? weight_grad) -> (Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "q4_conv2d_backward(Tensor g, Tensor x, Tensor weight, Tensor scale_a, Tensor? scale_w, Tensor? bias_a, *, "
      "int[2] stride, int[2] padding, int[2] dilation, int groups, int[2] kernel_size, float eps, bool reference_grad, "
      "ScalarType? weight_grad) -> (Tensor, Tensor, Tensor, Tensor)");
  // Backward of the products of two activations: gradients of x, y, x_clip and y_clip.
  m.def(
      "binary_matmul_backward(Tensor g, Tensor x, Tensor y, Tensor x_clip, Tensor y_clip, *, bool want_x, "
      "bool want_y) -> (Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "q8_matmul_backward(Tensor g, Tensor x, Tensor y, Tensor x_clip, Tensor y_clip, *, bool want_x, bool want_y, "
      "float eps, bool reference_grad) -> (Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "q4_matmul_backward(Tensor g, Tensor x, Tensor y, Tensor x_clip, Tensor y_clip, *, bool want_x, bool want_y, "
      "float eps, bool reference_grad) -> (Tensor, Tensor, Tensor, Tensor)");

  m.def("binary_prepack(Tensor weight, int in_features, int kernel_id=0) -> Tensor");
  m.def("select_binary_kernel(int m, int n, int k, Device? device=None) -> int");
  m.def("tune_gemm(int bits, int m, int n, int k, Device device) -> str");
  m.def("q8_prepack(Tensor weight) -> Tensor");
  m.def("q4_prepack(Tensor weight, int in_features) -> Tensor");
  m.def(
      "binary_conv2d_prepack(Tensor weight, int in_channels, int[2] kernel_size, int groups=1, "
      "int padding_value=-1) -> Tensor");
  m.def("q8_conv2d_prepack(Tensor weight, int groups=1) -> Tensor");
  m.def("q4_conv2d_prepack(Tensor weight, int in_channels, int[2] kernel_size, int groups=1) -> Tensor");

  m.def("pack_signs(Tensor x, Tensor? bias=None) -> Tensor");
  m.def("unpack_signs(Tensor packed, int k) -> Tensor");
  m.def("pack_int4(Tensor codes) -> Tensor");
  m.def("unpack_int4(Tensor packed, int k) -> Tensor");
  m.def("signs_from_layout(Tensor bytes, int n, int k, str layout) -> Tensor");
  m.def("signs_to_layout(Tensor packed, int k, str layout) -> Tensor");

  m.def("q8_quantize(Tensor x, Tensor? scale=None, float eps=1e-5) -> (Tensor q, Tensor scale)");
  m.def("q4_quantize(Tensor x, Tensor? scale=None, float eps=1e-5) -> (Tensor q, Tensor scale)");
  m.def(
      "amax_quantize(Tensor x, Tensor? amax=None, int num_bits=8, bool unsigned=False, bool narrow_range=True) -> "
      "(Tensor q, Tensor scale)");
  // One for each slice along the first axis: of the least mean square error, or of the largest code at a percentile of
  // the magnitudes.
  m.def("step_sizes(Tensor values, int bits, str rule=\"mse\", float percentile=99.9) -> Tensor");
  m.def("int8_grad(Tensor g) -> Tensor");
  m.def("binary_init(Tensor weight) -> (Tensor q, Tensor scale_w)");
  m.def("init_scale_(Tensor(a!) scale_a, Tensor x, float c) -> ()");

  // The rules of a layer's weight, bie/ops/weight_rules.h.
  m.def("weight_scale(Tensor weight, int bits, float eps=1e-5) -> Tensor");
  m.def("prepare_weight(Tensor weight, int bits, Tensor? scale=None, float eps=1e-5) -> (Tensor, Tensor)");
  m.def("pack_weight(Tensor(a) weight, int bits, Tensor(b)? scale=None, float eps=1e-5) -> (Tensor(a), Tensor(b))");
  m.def("packed_weight_shape(int[] shape, int bits) -> int[]");
  m.def("read_packed_weight(Tensor(a) packed, int[] shape, int bits, bool has_scales, str name) -> Tensor(a)");
  m.def("split_channels(Tensor weight) -> (Tensor, Tensor)");
  m.def("check_weight_entry(Tensor entry, int[] shape, int bits, ScalarType dtype, str name) -> ()");
  m.def("check_entry(Tensor entry, int[] shape, ScalarType dtype, str name) -> ()");
  m.def("check_scale_entry(Tensor entry, float? least, str name) -> Tensor");
  // Rules of a weight of packed codes, bie/ops/weight_only_rules.h.
  m.def(
      "weight_only_ranges(Tensor weight, int bits, int group_size=-1, *, bool asym=False, ScalarType? dtype=None) -> "
      "(Tensor scales, Tensor zeros)");
  // Codes by GPTQ, bie/weights/gptq.h. codes [k, n] int32; scales and zeros as weight_only_ranges has them.
  m.def(
      "gptq(Tensor weight, Tensor hessian, int bits, int group_size, *, bool asym, ScalarType dtype, "
      "float shrinkage, float damping) -> (Tensor codes, Tensor scales, Tensor zeros)");
  m.def("add_second_moment(Tensor(a!) sum, Tensor x) -> ()");
  m.def("mixed_rows(Tensor q_groups, int words, str name) -> (int[] bit_rows, Tensor g_idx)");
  m.def("check_groups_entry(Tensor entry, int rows, int groups, str name) -> ()");
  m.def("check_permutation_entry(Tensor entry, int rows, str name) -> ()");

  m.def(
      "block_tail(Tensor x, Tensor? mean=None, Tensor? var=None, Tensor? weight=None, Tensor? bias=None, "
      "Tensor? shortcut=None, Tensor? slope=None, *, float eps=1e-5, str activation=\"none\", int pool=1) -> Tensor");
  // The same by the batch's statistics, with mean and 1 / sqrt(var + eps); the running statistics are moved.
  m.def(
      "training_tail(Tensor x, Tensor? weight=None, Tensor? bias=None, Tensor(a!)? running_mean=None, "
      "Tensor(b!)? running_var=None, Tensor? shortcut=None, Tensor? slope=None, *, float momentum=0.1, "
      "float eps=1e-5, str activation=\"none\", int pool=1) -> (Tensor y, Tensor mean, Tensor rstd)");
  // Gradients of x, weight, bias, shortcut and slope; undefined where the tensor is, or a shortcut's is not wanted.
  m.def(
      "training_tail_backward(Tensor g, Tensor x, Tensor mean, Tensor rstd, Tensor? weight, Tensor? bias, "
      "Tensor? shortcut, Tensor? slope, *, str activation, int pool, bool want_shortcut) -> "
      "(Tensor, Tensor, Tensor, Tensor, Tensor)");

  m.def(
      "diode_mix_float_(Tensor(a!) param, Tensor grad, Tensor(b!) exp_avg_l, Tensor(c!) exp_avg_s, *, int step, "
      "float lr, float beta1, float beta2, float eps, float weight_decay=0.0, bool correct_bias=True, int seed=0, "
      "int stream=0) -> ()");
  m.def(
      "diode_mix_codes_(Tensor(a!) codes, Tensor grad, Tensor(b!) exp_avg_l, Tensor(c!) exp_avg_s, "
      "Tensor(d!) scale_w, *, int bits, bool renew_scale=False, int step, float lr, float beta1, float beta2, "
      "float eps, float weight_decay=0.0, bool correct_bias=True, int seed=0, int stream=0) -> ()");
  m.def(
      "diode_mix_signs_(Tensor(a!) signs, Tensor grad, Tensor(b!) exp_avg_l, Tensor(c!) exp_avg_s, *, int step, "
      "float lr, float beta1, float beta2, int seed=0, int stream=0) -> ()");
  // Many parameters in one call, and on CUDA in one launch.
  m.def(
      "diode_mix_float_many_(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avg_l, Tensor(c!)[] exp_avg_s, *, "
      "int[] steps, float lr, float beta1, float beta2, float eps, float weight_decay=0.0, bool correct_bias=True, "
      "int seed=0, int[] streams) -> ()");
  m.def(
      "diode_mix_codes_many_(Tensor(a!)[] codes, Tensor[] grads, Tensor(b!)[] exp_avg_l, Tensor(c!)[] exp_avg_s, "
      "Tensor(d!)[] scale_w, *, int[] bits, bool[] renew_scale, int[] steps, float lr, float beta1, float beta2, "
      "float eps, float weight_decay=0.0, bool correct_bias=True, int seed=0, int[] streams) -> ()");
  m.def(
      "diode_mix_signs_many_(Tensor(a!)[] signs, Tensor[] grads, Tensor(b!)[] exp_avg_l, Tensor(c!)[] exp_avg_s, *, "
      "int[] steps, float lr, float beta1, float beta2, int seed=0, int[] streams) -> ()");
  m.def("diode_mix_first_moment(Tensor signs, ScalarType dtype, int seed=0, int stream=0) -> Tensor");

  // Weights of packed codes. bit_rows: bits and rows of each width, where there are several; else bits of all.
  m.def(
      "weight_only_linear(Tensor x, Tensor qweight, Tensor scales, Tensor? zeros=None, Tensor? bias=None, *, int "
      "bits=0, "
      "int group_size=-1, Tensor? g_idx=None, Tensor? q_perm=None, int[]? bit_rows=None, Tensor? channel_scale=None, "
      "Tensor? anchor=None, Tensor? panels=None, bool int8_activations=False) -> Tensor");
  m.def(
      "weight_only_linear_backward(Tensor g, Tensor x, Tensor qweight, Tensor scales, Tensor? zeros=None, *, "
      "int bits=0, int group_size=-1, Tensor? g_idx=None, Tensor? q_perm=None, int[]? bit_rows=None, "
      "Tensor? channel_scale=None, bool want_x=True, bool want_weight=True) -> (Tensor, Tensor)");
  m.def(
      "weight_only_prepack(Tensor qweight, Tensor scales, Tensor? zeros=None, *, int in_features, int bits=0, "
      "int group_size=-1, Tensor? g_idx=None, Tensor? q_perm=None, int[]? bit_rows=None, bool int8_activations=False) "
      "-> Tensor");
  m.def(
      "weight_only_open(Tensor qweight, Tensor scales, Tensor? zeros=None, *, int in_features, int bits=0, "
      "int group_size=-1, Tensor? g_idx=None, Tensor? q_perm=None, int[]? bit_rows=None, ScalarType? dtype=None) -> "
      "Tensor");
  m.def(
      "weight_only_pack(Tensor values, Tensor scales, Tensor? zeros=None, *, int bits=0, int group_size=-1, "
      "Tensor? g_idx=None, Tensor? q_perm=None, int[]? bit_rows=None, bool at_random=False, int step=0, int seed=0, "
      "int stream=0) -> Tensor");
  m.def(
      "diode_mix_weight_only_(Tensor(a!) qweight, Tensor scales, Tensor(b!)? zeros, Tensor grad, "
      "Tensor(c!)? exp_avg_l=None, Tensor(d!)? exp_avg_s=None, Tensor(e!)? rest=None, *, int bits=0, "
      "int group_size=-1, Tensor? g_idx=None, Tensor? q_perm=None, int[]? bit_rows=None, int step, float lr, "
      "float beta1, float beta2, float eps, float weight_decay=0.0, bool correct_bias=True, bool moves_zeros=False, "
      "int seed=0, int stream=0) -> ()");
  m.def(
      "diode_mix_places_many_(Tensor(a!)[] qweights, Tensor(b!)[] scales, Tensor(c!)[]? zeros, Tensor[] grads, "
      "Tensor(d!)[] exp_avg_l, Tensor(e!)[] exp_avg_s, Tensor(f!)[]? largest=None, Tensor(g!)[]? rest=None, "
      "Tensor(h!)[]? scale_moments=None, *, int[] bits, int[] tops, int[] group_sizes, int[] steps, float lr, "
      "float scale_lr=0.0, float beta1, float beta2, float eps, float weight_decay=0.0, bool correct_bias=True, "
      "int seed=0, int[] streams) -> ()");
  m.def("pack_words(Tensor codes, int bits, int dim=0) -> Tensor");
  m.def("unpack_words(Tensor words, int bits, int size, int dim=0) -> Tensor");

  // Embeddings; anchor: a float [rows, embedding_dim] leaf whose gradient is sparse.
  m.def(
      "binary_embedding(Tensor indices, Tensor weight, Tensor scale, *, int embedding_dim, int? padding_idx=None, "
      "ScalarType? dtype=None, Tensor? anchor=None) -> Tensor");
  m.def(
      "binary_embedding_bag(Tensor indices, Tensor weight, *, int? embedding_dim=None, int? padding_idx=None, "
      "Tensor? anchor=None) -> Tensor");
  m.def(
      "weight_only_embedding(Tensor indices, Tensor qweight, Tensor scales, Tensor? zeros=None, *, int bits, "
      "int embedding_dim, int group_size=-1, int? padding_idx=None, ScalarType? dtype=None, Tensor? anchor=None) -> "
      "Tensor");
  m.def(
      "diode_mix_embedding_(Tensor(a!) weight, Tensor rows, Tensor votes, Tensor(b!) exp_avg_s, *, int embedding_dim, "
      "int step, float lr, float beta2, int seed=0, int stream=0) -> ()");
  m.def(
      "diode_mix_weight_only_rows_(Tensor(a!) qweight, Tensor scales, Tensor(b!)? zeros, Tensor rows, Tensor grad, "
      "Tensor(c!) exp_avg_l, Tensor(d!) exp_avg_s, *, int bits, int group_size=-1, int step, float lr, float beta1, "
      "float beta2, float eps, float weight_decay=0.0, bool correct_bias=True, bool moves_zeros=False, int seed=0, "
      "int stream=0) -> ()");

  // Files, for Python; C++ has bie/formats.
  m.def("gguf_read(str path) -> (str, Tensor[])");
  m.def(
      "gguf_blocks(str what, str type, Tensor words, Tensor scales, Tensor? zeros, *, int zero, int bits, int columns, "
      "int group_size) -> Tensor");
  m.def("gguf_rounded(Tensor values, str what, str type) -> Tensor");
  m.def(
      "gguf_write(str path, str[] keys, str[] key_types, Tensor[] numbers, str[] texts, int[] text_counts, str[] "
      "names, "
      "str[] types, int[] sizes, int[] ranks, Tensor[] bytes) -> ()");
  m.def("safetensors_write(str path, str[] names, Tensor[] tensors, str own) -> ()");
  m.def("weights_folder_read(str path) -> (str, Tensor[])");
  m.def(
      "net_bytes(str[] ops, int[] inputs, int[] ints, float[] floats, Tensor?[] blobs, int[] counts, int[] "
      "input_sizes, "
      "int[] outputs, str[] keys, str[] texts) -> Tensor");
  m.def("gguf_codes(Tensor blocks, str what, str type, int rows, int columns) -> (Tensor, Tensor, Tensor)");
}
