"""lockstep compare: one replica against N. Same? Faster?"""


def command() -> None:
    """One replica against N."""
