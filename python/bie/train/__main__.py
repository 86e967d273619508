"""torchrun --nproc-per-node N -m bie.train --data mnist:DIR --bits 1 --run-folder DIR"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from bie.train.options import parse
from bie.train.run import Run


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    try:
        run = Run(options)
        if options.resume:
            run.resume()
        run.start()
        run.train_all()
        run.finish()
    except (OSError, ValueError) as error:
        sys.exit(f"python -m bie.train: {error}")


if __name__ == "__main__":
    main()
