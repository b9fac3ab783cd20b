"""Read Fashion-MNIST and CIFAR-10 from their original files.

With a folder, these functions look only there. Without one, they look in `~/.cache/lockstep`, then
where Debian puts the files. They download what they do not find.

Fashion-MNIST: Xiao, Rasul, Vollgraf 2017, github.com/zalandoresearch/fashion-mnist.
CIFAR-10: Krizhevsky 2009, www.cs.toronto.edu/~kriz/cifar.html.
"""

from __future__ import annotations

import gzip
import io
import math
import pickle
import struct
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lockstep.data.dataset import Data, Tensors
from lockstep.data.download import Progress, fetch
from lockstep.errors import DataError

NUM_CLASSES = 10

FASHION_URL = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
FASHION_FILES = {
    "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
}
# Debian packs the same files again, so their checksums differ from those above.
FASHION_DEBIAN = Path("/usr/share/datasets/fashion-mnist")
FASHION_MEAN, FASHION_STD = (0.2860,), (0.3530,)

CIFAR10_URL = "https://www.cs.toronto.edu/~kriz/"
CIFAR10_FILES = {"cifar-10-python.tar.gz": "md5:c58f30108f718f92721af3b95e74349a"}
CIFAR10_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
CIFAR10_BATCH_SAMPLES = 10_000
CIFAR10_PIXELS = 3 * 32 * 32
CIFAR10_MEAN, CIFAR10_STD = (0.49139, 0.48216, 0.44653), (0.24703, 0.24349, 0.26159)


def fashion_mnist(
    folder: str | Path | None = None,
    *,
    samples: int | None = None,
    test_samples: int | None = None,
    progress: Progress | None = None,
) -> Data:
    """Load Fashion-MNIST: 60,000 and 10,000 grey 28x28 images of clothes.

    `folder` holds the four IDX files, gzipped or not. Without it, lockstep searches the usual
    places and downloads what is missing. `samples` and `test_samples` keep the first images.
    """
    home = _folder(folder, "fashion-mnist")
    places = [home] if folder is not None else [home, FASHION_DEBIAN]
    source = next((place for place in places if not _missing_idx(place)), None)
    if source is None:
        source = home
        instead = "leave out the folder and " if folder is not None else ""
        hint = f", or {instead}type: apt install dataset-fashion-mnist"
        _download(FASHION_URL, _missing_idx(home), places, hint, progress)
    train, test = (_read_idx_pair(source, part) for part in ("train", "t10k"))
    return Data(
        train=_first(train, samples, "samples"),
        test=_first(test, test_samples, "test_samples"),
        prepare=partial(normalise, mean=FASHION_MEAN, std=FASHION_STD),
    )


def cifar10(
    folder: str | Path | None = None,
    *,
    samples: int | None = None,
    test_samples: int | None = None,
    progress: Progress | None = None,
) -> Data:
    """Load CIFAR-10: 50,000 and 10,000 colour 32x32 photographs.

    `folder` holds the Python or the binary version: the batches, the folder that they come in, or
    `cifar-10-python.tar.gz`. Without it, lockstep uses its cache and downloads what is missing.
    `samples` and `test_samples` keep the first images.
    """
    home = _folder(folder, "cifar10")
    if (batches := _cifar10_batches(home)) is None:
        _download(CIFAR10_URL, CIFAR10_FILES, [home], "", progress)
        batches = _cifar10_batches(home)
    assert batches is not None
    *parts, test = (_read_cifar10(path, read) for path, read in batches)
    train = Tensors(
        torch.cat([part.inputs for part in parts]), torch.cat([part.targets for part in parts])
    )
    return Data(
        train=_first(train, samples, "samples"),
        test=_first(test, test_samples, "test_samples"),
        prepare=partial(normalise, mean=CIFAR10_MEAN, std=CIFAR10_STD),
    )


def normalise(
    inputs: Tensor, mean: tuple[float, ...], std: tuple[float, ...], peak: float = 255.0
) -> Tensor:
    """Turn bytes into float32, per channel: (inputs / peak - mean) / std. Keep the memory format.

    >>> normalise(torch.tensor([[[[0, 255]]]], dtype=torch.uint8), mean=(0.5,), std=(0.5,))
    tensor([[[[-1.,  1.]]]])
    """
    # Multiply and add: CUDA divides by multiplying with the inverse, which has other bits.
    scale = _channels(tuple(1 / (peak * s) for s in std), inputs.device)
    shift = _channels(tuple(-m / s for m, s in zip(mean, std, strict=True)), inputs.device)
    return (inputs * scale).add_(shift)


# torch.compile can look into a plain dictionary, but not into functools.cache.
_CONSTANTS: dict[tuple[tuple[float, ...], torch.device], Tensor] = {}


def _channels(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Return one value per channel, kept on the device: copying it in every step would wait."""
    if (values, device) not in _CONSTANTS:
        with torch.inference_mode(False):
            constants = torch.tensor(values, dtype=torch.float32, device=device)
            _CONSTANTS[values, device] = constants.view(-1, 1, 1)
    return _CONSTANTS[values, device]


def _folder(folder: str | Path | None, name: str) -> Path:
    if folder is None:
        return Path.home() / ".cache" / "lockstep" / name
    path = Path(folder).expanduser()
    if path.is_file():
        raise DataError(f"{path} is a file. Give the folder that it lies in: {path.parent}")
    return path


def _download(
    url: str, files: dict[str, str], places: list[Path], hint: str, progress: Progress | None
) -> None:
    """Fetch `files` into the first of the `places` that were searched."""
    try:
        for name, checksum in files.items():
            fetch(url + name, places[0] / name, checksum, progress)
    except DataError as error:
        raise DataError(
            f"{', '.join(files)} not found in {' or '.join(map(str, places))}, and the download "
            f"failed: {error}\nPut {', '.join(files)} (from {url}) into {places[0]}{hint}"
        ) from error


def _first(part: Tensors, count: int | None, name: str) -> Tensors:
    """Copy the first `count` samples of `part`, so that the others can be freed."""
    if count is None:
        return part
    if not 1 <= count <= len(part):
        raise DataError(
            f"{name}={count}, but there are {len(part)} images: give 1 to {len(part)}, or leave "
            "it out to use all."
        )
    return Tensors(part.inputs[:count].clone(), part.targets[:count].clone())


def _labelled(path: Path, inputs: Tensor, targets: Tensor) -> Tensors:
    if len(inputs) != len(targets):
        raise _damaged(path, f"{len(inputs)} images and {len(targets)} labels")
    if not 0 <= int(targets.min()) <= int(targets.max()) < NUM_CLASSES:
        raise _damaged(path, f"label {int(targets.max())} is not one of 0 to {NUM_CLASSES - 1}")
    return Tensors(inputs, targets.long())


def _damaged(path: Path, problem: str) -> DataError:
    remedy = "Delete it and run again to download it"
    if path.is_relative_to(FASHION_DEBIAN):
        remedy = "Repair it with: apt install --reinstall dataset-fashion-mnist"
    return DataError(f"{path} is damaged or not what its name says: {problem}. {remedy}.")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Report any error inside the block as damage of the file at `path`."""
    try:
        yield
    except DataError:
        raise
    # Catch every type: a damaged pickle can raise almost any of them.
    except Exception as error:
        raise _damaged(path, f"{type(error).__name__}: {error}") from error


def _idx_path(folder: Path, name: str) -> Path:
    """Return the gzipped file `name`, or the unpacked one if only that exists."""
    zipped, plain = folder / name, folder / name.removesuffix(".gz")
    return plain if plain.is_file() and not zipped.is_file() else zipped


def _missing_idx(folder: Path) -> dict[str, str]:
    return {
        name: checksum
        for name, checksum in FASHION_FILES.items()
        if not _idx_path(folder, name).is_file()
    }


def _read_idx_pair(folder: Path, part: str) -> Tensors:
    images = _idx_path(folder, f"{part}-images-idx3-ubyte.gz")
    labels = _idx_path(folder, f"{part}-labels-idx1-ubyte.gz")
    return _labelled(labels, _read_idx(images, (28, 28))[:, None], _read_idx(labels, ()))


def _read_idx(path: Path, shape: tuple[int, ...]) -> Tensor:
    """Read an IDX file of bytes whose samples have `shape` (yann.lecun.com/exdb/mnist)."""
    with _reading(path):
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    header = struct.Struct(f">{2 + len(shape)}I")
    if len(raw) < header.size:
        raise _damaged(path, f"{len(raw)} bytes are too few for the header")
    magic, count, *found = header.unpack_from(raw)
    expected = 0x801 + len(shape)
    if magic != expected:
        raise _damaged(path, f"bad magic number {magic}, expected {expected}")
    if count < 1 or tuple(found) != shape:
        raise _damaged(path, f"{count} samples of shape {tuple(found)}, expected {shape}")
    if (size := len(raw) - header.size) != count * math.prod(shape):
        raise _damaged(path, f"{size} bytes do not hold the {count} samples that it announces")
    flat = torch.frombuffer(bytearray(raw), dtype=torch.uint8, offset=header.size)
    return flat.view(count, *shape)


Batches = list[tuple[Path, Callable[[], bytes]]]


def _cifar10_batches(folder: Path) -> Batches | None:
    """Return the paths of the six batches and how to read each; None if one is missing."""
    for place in (folder, folder / "cifar-10-batches-py", folder / "cifar-10-batches-bin"):
        for suffix in ("", ".bin"):
            paths = [place / f"{name}{suffix}" for name in CIFAR10_BATCHES]
            if all(path.is_file() for path in paths):
                return [(path, path.read_bytes) for path in paths]
    archive = folder / next(iter(CIFAR10_FILES))
    return _read_archive(archive) if archive.is_file() else None


def _read_archive(path: Path) -> Batches:
    with _reading(path), tarfile.open(path) as archive:
        found = {
            Path(member.name).name: file.read()
            for member in archive
            if (file := archive.extractfile(member)) is not None
        }
    missing = [name for name in CIFAR10_BATCHES if name not in found]
    if missing:
        raise _damaged(path, f"it does not contain {', '.join(missing)}")
    return [(path / name, partial(found.__getitem__, name)) for name in CIFAR10_BATCHES]


def _read_cifar10(path: Path, read: Callable[[], bytes]) -> Tensors:
    with _reading(path):
        decode = _decode_records if path.suffix == ".bin" else _decode_pickle
        images, labels = decode(bytearray(read()))
        if images.shape != (CIFAR10_BATCH_SAMPLES, CIFAR10_PIXELS):
            expected = f"{CIFAR10_BATCH_SAMPLES} images of {CIFAR10_PIXELS} bytes"
            raise _damaged(path, f"it holds {list(images.shape)}, expected {expected}")
        return _labelled(path, images.reshape(-1, 3, 32, 32), labels)


def _decode_records(raw: bytearray) -> tuple[Tensor, Tensor]:
    """Decode the binary version: records of a label and the pixels."""
    size = 1 + CIFAR10_PIXELS
    if len(raw) % size:
        raise ValueError(f"{len(raw)} bytes are not whole records of {size}")
    records = torch.frombuffer(raw, dtype=torch.uint8).view(-1, size)
    return records[:, 1:], records[:, 0]


def _decode_pickle(raw: bytearray) -> tuple[Tensor, Tensor]:
    """Decode the images and labels of the Python version."""
    batch = _ArrayUnpickler(io.BytesIO(raw), encoding="bytes").load()
    return torch.from_numpy(batch[b"data"]), torch.tensor(batch[b"labels"])


def _byte_type(name: bytes, align: int, copy: int) -> np.dtype[Any]:
    """Replace `numpy.dtype`, which deprecates the integers that Python 2 wrote for flags."""
    if name != b"u1":
        raise pickle.UnpicklingError(f"an array of {name!r}, expected bytes")
    return np.dtype(np.uint8, copy=True)


class _ArrayUnpickler(pickle.Unpickler):
    """Builds containers and byte arrays; a pickle that names anything else could run any code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("numpy", "ndarray"):
            return np.ndarray
        if (module, name) == ("numpy", "dtype"):
            return _byte_type
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "_reconstruct":
            return np.empty(0).__reduce__()[0]
        raise pickle.UnpicklingError(
            f"it asks for {module}.{name}, which a data file does not need"
        )
