"""The rate is divided where it should not be."""

FAILS = {"target": "in two consecutive epochs"}
CHANGES = {"model.parameters(), RATE,": "model.parameters(), RATE / 1000,"}
