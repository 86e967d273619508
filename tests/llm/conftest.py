from interfaces import both, keyed, thinker  # noqa: F401
from llm_fixtures import answer, library, models, real_twin, refusal, run, smollm  # noqa: F401
from quantize_fixtures import file, plain, quantize, quantized, source, text  # noqa: F401
from serving import other, serve, served_model, server, written  # noqa: F401
