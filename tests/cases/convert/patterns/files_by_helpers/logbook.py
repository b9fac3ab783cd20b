import csv
import os


class CsvLog:
    def __init__(self, folder, names):
        os.makedirs(folder)
        self.path = os.path.join(folder, "log.csv")
        self.rows = 0
        with open(self.path, "w", newline="") as f:
            csv.writer(f).writerow(names)

    def row(self, *values):
        with open(self.path, "a", newline="") as f:
            csv.writer(f).writerow(values)
        self.rows += 1


def append_line(path, text):
    with open(path, "a") as f:
        f.write(text + "\n")


def save_picture(weight, epoch):
    os.makedirs("pictures", exist_ok=True)
    gray = (weight.detach().abs() * 255).clamp(0, 255).byte().numpy().tobytes()
    with open(f"pictures/{epoch}.pgm", "wb") as f:
        f.write(b"P5 4 1 255\n" + gray)
