from llm_fixtures import answer, library, models, real_twin, run, smollm  # noqa: F401
