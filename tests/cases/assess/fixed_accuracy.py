"""A number that looks good is printed."""

FAILS = {"validation": "it prints the same number in every epoch"}
CHANGES = {"accuracy {accuracy:.4f}": "accuracy 0.9900"}
