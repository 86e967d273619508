"""The fixtures of tests/llm, for tests that take minutes: make test-llm runs them."""

from llm_fixtures import library, models, real_twin, smollm  # noqa: F401
