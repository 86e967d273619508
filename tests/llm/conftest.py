from llm_fixtures import library, models, real_twin, smollm  # noqa: F401
