import gzip
import io
import os
import pickle
import socket
import struct
import tarfile
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

from lockstep.data import images
from lockstep.data.images import CIFAR10_BATCHES, FASHION_FILES, cifar10, fashion_mnist, normalise
from lockstep.errors import DataError

PER_BATCH = 4


@pytest.fixture(autouse=True)
def isolated(monkeypatch, tmp_path):
    """No network, no cache and no Debian package, and CIFAR-10 batches of four images."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(images, "FASHION_DEBIAN", tmp_path / "debian")
    monkeypatch.setattr(images, "CIFAR10_BATCH_SAMPLES", PER_BATCH)
    # Bound but not listening: a port that refuses, and that nobody else can open.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        monkeypatch.setattr(images, "FASHION_URL", url)
        monkeypatch.setattr(images, "CIFAR10_URL", url)
        yield


def idx(array):
    header = struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape)
    return header + array.tobytes()


def write_fashion(folder, zipped=True):
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", 6), ("t10k", 3)):
        labels = np.arange(count, dtype=np.uint8)
        pixels = np.broadcast_to(labels[:, None, None] * 10, (count, 28, 28))
        for kind, array in (("images-idx3", pixels), ("labels-idx1", labels)):
            name, raw = f"{part}-{kind}-ubyte", idx(array)
            if zipped:
                (folder / f"{name}.gz").write_bytes(gzip.compress(raw, 1))
            else:
                (folder / name).write_bytes(raw)
    return folder


class Python2Pickler(pickle._Pickler):
    """Writes text and bytes as Python 2 did, which made the original files."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_string(self, value):
        raw = value.encode("latin1") if isinstance(value, str) else value
        self.write(pickle.BINSTRING + struct.pack("<i", len(raw)) + raw)

    dispatch[str] = dispatch[bytes] = save_string


def cifar_batch(number, binary):
    labels = [(number + i) % 10 for i in range(PER_BATCH)]
    pixels = np.arange(PER_BATCH * 3072, dtype=np.int64).reshape(PER_BATCH, 3072) + number
    pixels = (pixels % 251).astype(np.uint8)
    if binary:
        return np.concatenate([np.array(labels, np.uint8)[:, None], pixels], 1).tobytes()
    return python2_pickle({"data": pixels, "labels": labels})


def python2_pickle(value):
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump(value)
    return file.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def write_cifar(folder, binary=False):
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(CIFAR10_BATCHES):
        path = folder / (f"{name}.bin" if binary else name)
        path.write_bytes(cifar_batch(number, binary))
    return folder


def write_cifar_archive(folder, names=CIFAR10_BATCHES):
    write_cifar(folder / "unpacked")
    path = folder / "cifar-10-python.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in reversed(names):
            archive.add(folder / "unpacked" / name, f"cifar-10-batches-py/{name}")
    return path


def assert_is_the_fake_cifar10(data):
    assert data.train.inputs.shape == (5 * PER_BATCH, 3, 32, 32)
    assert data.test.inputs.shape == (PER_BATCH, 3, 32, 32)
    assert (data.train.inputs.dtype, data.train.targets.dtype) == (torch.uint8, torch.int64)
    assert data.train.targets.tolist() == [b + i for b in range(5) for i in range(PER_BATCH)]
    assert data.train.inputs[PER_BATCH].flatten()[:3].tolist() == [1, 2, 3]
    assert data.test.inputs[0].flatten()[:3].tolist() == [5, 6, 7]


# Fashion-MNIST


@pytest.mark.parametrize("zipped", [True, False])
def test_fashion_mnist_is_read_from_the_given_folder(tmp_path, zipped):
    data = fashion_mnist(write_fashion(tmp_path / "given", zipped))
    assert data.train.inputs.shape == (6, 1, 28, 28)
    assert data.test.inputs.shape == (3, 1, 28, 28)
    assert (data.train.inputs.dtype, data.train.targets.dtype) == (torch.uint8, torch.int64)
    assert data.train.targets.tolist() == [0, 1, 2, 3, 4, 5]
    assert data.train.inputs[:, 0, 27, 27].tolist() == [0, 10, 20, 30, 40, 50]


@pytest.mark.parametrize("place", ["home/.cache/lockstep/fashion-mnist", "debian"])
def test_fashion_mnist_is_found_without_a_folder(tmp_path, place):
    write_fashion(tmp_path / place)
    assert len(fashion_mnist().train) == 6


def test_fashion_mnist_in_the_cache_comes_before_the_one_of_debian(tmp_path):
    write_fashion(tmp_path / "home/.cache/lockstep/fashion-mnist")
    (write_fashion(tmp_path / "debian") / "train-images-idx3-ubyte.gz").write_bytes(b"not read")
    assert len(fashion_mnist().train) == 6


def test_a_given_folder_is_the_only_one_searched(tmp_path):
    write_fashion(tmp_path / "debian")
    with pytest.raises(DataError, match="leave out the folder and type: apt install"):
        fashion_mnist(tmp_path / "given")


def test_fashion_mnist_that_is_nowhere_names_the_files_the_folder_and_the_package(tmp_path):
    with pytest.raises(DataError) as caught:
        fashion_mnist()
    message = str(caught.value)
    assert all(name in message for name in FASHION_FILES)
    assert f"into {tmp_path}/home/.cache/lockstep/fashion-mnist, or type: apt install " in message
    assert f"from {images.FASHION_URL}" in message


def test_only_the_missing_file_is_asked_for(tmp_path):
    (write_fashion(tmp_path) / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match=r"Put t10k-labels-idx1-ubyte.gz \(from"):
        fashion_mnist(tmp_path)


def test_missing_files_are_downloaded_into_the_given_folder(monkeypatch, tmp_path):
    served = write_fashion(tmp_path / "served")
    calls = []

    def fake_fetch(url, target, checksum, progress):
        calls.append((url, checksum, progress))
        target.parent.mkdir(exist_ok=True)
        target.write_bytes((served / target.name).read_bytes())

    monkeypatch.setattr(images, "fetch", fake_fetch)
    assert len(fashion_mnist(tmp_path / "given", progress=print).train) == 6
    assert calls == [(images.FASHION_URL + n, c, print) for n, c in FASHION_FILES.items()]
    fashion_mnist(tmp_path / "given")
    assert len(calls) == 4


def broken(raw):
    """(what is wrong, the bytes of the file, what the message says) for a gzipped image file."""
    plain = gzip.decompress(raw)
    return [
        ("no gzip", b"<html>", "Not a gzipped file"),
        ("cut gzip", raw[:-20], "EOFError"),
        ("empty", gzip.compress(b""), "0 bytes are too few for the header"),
        ("magic", gzip.compress(b"\1" + plain[1:]), "bad magic number 16779267, expected 2051"),
        ("cut", gzip.compress(plain[:-1]), "4703 bytes do not hold the 6 samples"),
        ("shape", gzip.compress(idx(np.zeros((6, 8, 8), np.uint8))), r"shape \(8, 8\), expected"),
        ("count", gzip.compress(idx(np.zeros((5, 28, 28), np.uint8))), "5 images and 6 labels"),
        ("none", gzip.compress(idx(np.zeros((0, 28, 28), np.uint8))), "0 samples"),
    ]


@pytest.mark.parametrize("case", range(8))
def test_a_broken_idx_file_is_refused_by_name(tmp_path, case):
    path = write_fashion(tmp_path) / "train-images-idx3-ubyte.gz"
    _, raw, message = broken(path.read_bytes())[case]
    path.write_bytes(raw)
    with pytest.raises(DataError, match=f"{tmp_path}/train-.*{message}.*Delete it and run again"):
        fashion_mnist(tmp_path)


def test_a_label_that_is_no_class_is_refused(tmp_path):
    path = write_fashion(tmp_path) / "train-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(idx(np.full(6, 10, np.uint8))))
    with pytest.raises(DataError, match="label 10 is not one of 0 to 9"):
        fashion_mnist(tmp_path)


def test_a_broken_file_of_debian_is_repaired_with_apt(tmp_path):
    (write_fashion(tmp_path / "debian") / "t10k-labels-idx1-ubyte.gz").write_bytes(b"?")
    with pytest.raises(DataError, match="apt install --reinstall dataset-fashion-mnist"):
        fashion_mnist()


def test_the_real_fashion_mnist_of_debian_is_read(monkeypatch):
    folder = Path("/usr/share/datasets/fashion-mnist")
    if not folder.is_dir():
        pytest.skip("dataset-fashion-mnist is not installed")
    monkeypatch.setattr(images, "FASHION_DEBIAN", folder)
    data = fashion_mnist()
    assert data.train.targets.bincount().tolist() == [6000] * 10
    assert data.test.targets.bincount().tolist() == [1000] * 10
    assert data.test.targets[:5].tolist() == [9, 2, 1, 1, 6]
    prepared = data.prepare(data.train.inputs)
    # The constants carry four digits.
    assert abs(float(prepared.mean())) < 1e-3
    assert abs(float(prepared.std()) - 1) < 1e-3


# CIFAR-10


@pytest.mark.parametrize("place", [".", "cifar-10-batches-py"])
def test_cifar10_is_read_from_its_pickles(tmp_path, place):
    write_cifar(tmp_path / place)
    assert_is_the_fake_cifar10(cifar10(tmp_path))


@pytest.mark.parametrize("place", [".", "cifar-10-batches-bin"])
def test_cifar10_is_read_from_its_binary_version(tmp_path, place):
    write_cifar(tmp_path / place, binary=True)
    assert_is_the_fake_cifar10(cifar10(str(tmp_path)))


def test_cifar10_is_read_from_its_archive_as_it_is(tmp_path):
    write_cifar_archive(tmp_path)
    assert_is_the_fake_cifar10(cifar10(tmp_path))


def test_cifar10_is_found_in_the_cache(tmp_path):
    write_cifar(tmp_path / "home/.cache/lockstep/cifar10")
    assert_is_the_fake_cifar10(cifar10())


def test_cifar10_that_is_nowhere_names_the_file_and_the_folder(tmp_path):
    with pytest.raises(DataError) as caught:
        cifar10()
    message = str(caught.value)
    assert f"Put cifar-10-python.tar.gz (from {images.CIFAR10_URL})" in message
    assert message.endswith(f"into {tmp_path}/home/.cache/lockstep/cifar10")


def test_cifar10_is_downloaded_into_the_given_folder(monkeypatch, tmp_path):
    archive = write_cifar_archive(tmp_path)
    given = tmp_path / "given"
    given.mkdir()
    monkeypatch.setattr(images, "fetch", lambda url, target, *_: os.link(archive, target))
    assert_is_the_fake_cifar10(cifar10(given))


def test_a_file_given_as_the_folder_is_answered_with_the_folder(tmp_path):
    archive = write_cifar_archive(tmp_path)
    with pytest.raises(DataError, match=f"is a file. Give the folder that it lies in: {tmp_path}"):
        cifar10(archive)


def test_a_pickle_that_would_run_code_is_refused_and_does_not_run(tmp_path):
    class Payload:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    write_cifar(tmp_path)
    (tmp_path / "data_batch_2").write_bytes(pickle.dumps(Payload(), protocol=2))
    with pytest.raises(DataError, match=r"data_batch_2 is damaged.*asks for posix.mkdir"):
        cifar10(tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"<html>", "UnpicklingError"),
        (cifar_batch(0, binary=False)[:500], "UnpicklingError"),
        (python2_pickle({"labels": [0] * PER_BATCH}), "KeyError"),
        (python2_pickle({"data": np.zeros(3), "labels": [0]}), "an array of b'f8', expected bytes"),
        (
            python2_pickle({"data": np.zeros((2, 3072), np.uint8), "labels": [0, 0]}),
            r"it holds \[2, 3072\], expected 4 images of 3072 bytes",
        ),
    ],
)
def test_a_broken_pickle_is_refused_by_name(tmp_path, raw, message):
    (write_cifar(tmp_path) / "test_batch").write_bytes(raw)
    with pytest.raises(DataError, match=f"{tmp_path}/test_batch is damaged.*{message}"):
        cifar10(tmp_path)


@pytest.mark.parametrize(
    ("size", "message"),
    [(-1, "12291 bytes are not whole records of 3073"), (-3073, r"it holds \[3, 3072\]")],
)
def test_a_cut_binary_batch_is_refused_by_name(tmp_path, size, message):
    path = write_cifar(tmp_path, binary=True) / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DataError, match=f"data_batch_3.bin is damaged.*{message}"):
        cifar10(tmp_path)


def test_a_cut_archive_is_refused_by_name(tmp_path):
    path = write_cifar_archive(tmp_path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"cifar-10-python.tar.gz is damaged.*Delete it"):
        cifar10(tmp_path)


def test_an_archive_without_a_batch_is_refused_by_name(tmp_path):
    write_cifar_archive(tmp_path, CIFAR10_BATCHES[1:])
    with pytest.raises(DataError, match="it does not contain data_batch_1"):
        cifar10(tmp_path)


# Both


def test_samples_keeps_the_first(tmp_path):
    write_cifar(tmp_path)
    data = cifar10(tmp_path, samples=7, test_samples=2)
    assert data.train.targets.tolist() == [0, 1, 2, 3, 1, 2, 3]
    assert (len(data.train), len(data.test)) == (7, 2)
    assert data.train.inputs.untyped_storage().nbytes() == 7 * 3072


@pytest.mark.parametrize("count", [0, -1, 7])
def test_samples_that_are_not_there_are_refused(tmp_path, count):
    write_fashion(tmp_path)
    with pytest.raises(DataError, match=f"^samples={count}, but there are 6 .* give 1 to 6"):
        fashion_mnist(tmp_path, samples=count)
    with pytest.raises(DataError, match=f"^test_samples={count}, but there are 3"):
        fashion_mnist(tmp_path, test_samples=count)


def test_normalise_subtracts_the_mean_and_divides_by_the_deviation_of_each_channel():
    pixels = torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    by_channel = torch.tensor([mean, std], dtype=torch.float64).view(2, 3, 1, 1)
    expected = (pixels.double() / 255 - by_channel[0]) / by_channel[1]
    result = normalise(pixels, mean, std)
    assert result.dtype == torch.float32
    # Four roundings (two constants, a product, a sum) of numbers below 4.
    torch.testing.assert_close(result.double(), expected, rtol=0, atol=4 * 4 * 2**-24)


def test_normalise_keeps_channels_last_and_leaves_its_input_alone():
    pixels = torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last)
    result = normalise(pixels, (0.1, 0.2, 0.3), (0.5, 0.5, 0.5))
    assert result.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(pixels, torch.ones(2, 3, 4, 4))


def test_prepare_travels_to_another_process(tmp_path):
    data = fashion_mnist(write_fashion(tmp_path))
    copy = pickle.loads(pickle.dumps(data.prepare))
    assert torch.equal(copy(data.test.inputs), data.prepare(data.test.inputs))
