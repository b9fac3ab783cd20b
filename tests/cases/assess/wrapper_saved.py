"""The wrapper's weights are saved: every name begins with 'module.'."""

FAILS = {"saving": "its names begin with 'module.'"}
CHANGES = {"model.module.state_dict()": "model.state_dict()"}
