"""`python -m bitorch_engine` prints what `bie doctor` prints."""

import argparse

import _bie_command

if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m bitorch_engine", description=__doc__).parse_args()
    _bie_command.run(["doctor"])
