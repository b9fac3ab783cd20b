"""The rate is divided where it should not be."""

FAILS = {"target": "in two epochs on end was asked for"}
CHANGES = {"model.parameters(), RATE,": "model.parameters(), RATE / 1000,"}
