import json
import time


class RunTracker:
    """Small experiment logger: one json line per record."""

    def __init__(self, path):
        self.fh = open(path, "w")
        self.t0 = time.time()

    def log(self, **kw):
        kw["time"] = round(time.time() - self.t0, 3)
        self.fh.write(json.dumps(kw) + "\n")
        self.fh.flush()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.fh.close()
