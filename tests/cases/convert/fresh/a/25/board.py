import csv
import os


class Board:
    """add_scalar(tag, value, step) as in TensorBoard, kept in one csv."""

    def __init__(self, logdir):
        os.makedirs(logdir, exist_ok=True)
        self.f = open(os.path.join(logdir, "scalars.csv"), "w", newline="")
        self.w = csv.writer(self.f)
        self.w.writerow(["step", "tag", "value"])

    def add_scalar(self, tag, value, step):
        self.w.writerow([step, tag, f"{value:.6g}"])

    def add_text(self, tag, text, step):
        self.w.writerow([step, tag, text])

    def close(self):
        self.f.close()
