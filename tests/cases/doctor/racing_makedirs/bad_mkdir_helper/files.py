import os


def ensure_tree(base):
    """base/ and base/ckpt, made when they are missing"""
    for folder in (base, os.path.join(base, "ckpt")):
        if os.path.isdir(folder):
            continue
        os.mkdir(folder)  # LS35
    return os.path.join(base, "ckpt")
