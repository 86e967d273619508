from llm_fixtures import answer, library, models, real_twin, refusal, run, smollm  # noqa: F401
