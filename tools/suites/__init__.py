"""The suites of tools/run_tests.py, and what they share."""
