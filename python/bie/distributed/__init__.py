"""Training of integer weights in several processes: docs/distributed.md."""

from bie.distributed import ddp as ddp
from bie.distributed.checks import RanksDifferError
from bie.distributed.exchange import sum_codes
from bie.distributed.reducer import IntegerReducer, reducer_of, train_alone

__all__ = ["IntegerReducer", "RanksDifferError", "reducer_of", "sum_codes", "train_alone"]
