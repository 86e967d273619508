/* Runs an exported net on one image of zeros, or of the floats in a file: run_net NET [FLOATS]
 *   cc run_net.c -I PREFIX/include -L PREFIX/lib -lbie_runtime -o run_net */
#include <bie/runtime/bie_runtime.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(void) { return fprintf(stderr, "%s\n", bie_last_error()), 1; }

int main(int argc, char** argv) {
  bie_net* net = NULL;
  bie_context* context = NULL;
  bie_tensor input, output;
  if (bie_net_load(argc > 1 ? argv[1] : "net.bie", &net) != BIE_OK) return fail();
  if (bie_context_create(net, NULL, &context) != BIE_OK) return fail();
  if (bie_net_input(net, 0, &input) != BIE_OK || bie_net_output(net, 0, &output) != BIE_OK) return fail();

  float* pixels = calloc((size_t)input.elements, sizeof(float));
  float* logits = calloc((size_t)output.elements, sizeof(float));
  FILE* file = argc > 2 ? fopen(argv[2], "rb") : NULL;
  if (file && fread(pixels, sizeof(float), (size_t)input.elements, file) != (size_t)input.elements) return 1;

  const void* inputs[] = {pixels};
  void* outputs[] = {logits};
  if (bie_run(context, 1, inputs, outputs) != BIE_OK) return fail();
  for (int64_t i = 0; i < output.elements; ++i) printf("%.9g\n", (double)logits[i]);

  bie_context_free(context);
  bie_net_free(net);
  return 0;
}
