"""``python -m bie.train``: trainings of known nets by several processes; docs/distributed.md#the-command."""
