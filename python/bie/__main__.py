"""`python -m bie` prints what `bie doctor` prints."""

import argparse
import sys


def main(package: str) -> None:
    """``package`` is the name that was asked for."""
    name = f"python -m {package}"
    argparse.ArgumentParser(prog=name, description=f"`{name}` prints what `bie doctor` prints.").parse_args()
    try:
        import bie_cli
    except ImportError:
        sys.exit(f"{name}: the command `bie` is a package of its own, bie-cli, and is not installed")
    bie_cli.run(["doctor"])


if __name__ == "__main__":
    main("bie")
