"""`python -m bitorch_engine` prints what `bie doctor` prints."""

import argparse
import sys

if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m bitorch_engine", description=__doc__).parse_args()
    try:
        import bie_cli
    except ImportError:
        sys.exit("python -m bitorch_engine: the command `bie` is a package of its own, bie-cli, and is not installed")
    bie_cli.run(["doctor"])
