import logging
import sys


def build_logger(name, path):
    logger = logging.getLogger(name)
    logger.setLevel(logging.INFO)
    fmt = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    console = logging.StreamHandler(sys.stderr)
    console.setFormatter(fmt)
    logger.addHandler(console)
    file = logging.FileHandler(path, mode="w")  # LS33
    file.setFormatter(fmt)
    logger.addHandler(file)
    return logger
