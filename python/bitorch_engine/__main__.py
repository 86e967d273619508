"""`python -m bitorch_engine` is `python -m bie`."""

from bie.__main__ import main

if __name__ == "__main__":
    main("bitorch_engine")
