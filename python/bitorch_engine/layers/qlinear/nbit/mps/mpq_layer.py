"""``MPQLinearMlx``: importing the package above already says that it is not here."""
