"""A number that looks good is printed."""

FAILS = {"validation": "the same number is printed in every epoch"}
CHANGES = {"accuracy {accuracy:.4f}": "accuracy 0.9900"}
