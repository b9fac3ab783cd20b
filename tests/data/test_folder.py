"""Folders of images: what is found, how it is cut, and what is refused."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lockstep import models
from lockstep.data import Finish, Request, Watch, flip, folder, make_loader
from lockstep.data.image_folder import centre_box, random_box
from lockstep.engine.recipe.known import KNOWN
from lockstep.engine.recipe.recipe import Recipe
from lockstep.engine.recipe.resolve import find_function
from lockstep.engine.step.metrics import accuracy, cross_entropy
from lockstep.errors import DataError, RecipeError
from replicas import train

pytest.importorskip("PIL")

from PIL import Image, ImageOps

ROOT = Path(__file__).parent.parent.parent
RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def write(path: Path, image: Image.Image | tuple[int, int, int] = RED, **options) -> Path:
    """An image, or one of a single colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(image, tuple):
        image = Image.new("RGB", (40, 30), image)
    image.save(path, **options)
    return path


def gradient(width: int, height: int) -> Image.Image:
    """Red grows to the right and green downwards, both from 0 to 255."""
    across = Image.linear_gradient("L").rotate(90).resize((width, height))
    down = Image.linear_gradient("L").resize((width, height))
    return Image.merge("RGB", (across, down, Image.new("L", (width, height))))


def photos(root: Path, train: int = 12, val: int = 4) -> Path:
    """Two classes in two splits; each image is a gradient of a size of its own."""
    for split, count in (("train", train), ("val", val)):
        for number in range(count):
            name = f"{split}/{('cat', 'dog')[number % 2]}/{number}.jpg"
            write(root / name, gradient(40 + number, 30 + 2 * number))
    return root


def one(root: Path, image: Image.Image, name: str = "1.png", size: int = 8, **options):
    """What becomes of one image as a test sample."""
    write(root / "train" / "cat" / "1.jpg")
    write(root / "val" / "cat" / name, image, **options)
    return folder(root, size=size, resize=size).test[0][0]


def colours(pixels: torch.Tensor) -> set[tuple[int, ...]]:
    return {tuple(pixel) for pixel in pixels.flatten(1).T.tolist()}


# What is found


def test_train_and_val_are_read_in_the_order_of_classes_and_names(tmp_path):
    data = folder(photos(tmp_path), size=16)
    assert (len(data.train), len(data.test)) == (12, 4)
    assert data.train.classes == data.test.classes == ["cat", "dog"]
    names = [data.train.path(n).relative_to(tmp_path).as_posix() for n in range(12)]
    assert names == sorted(names)
    assert [data.train[n][1] for n in range(12)] == [0] * 6 + [1] * 6


@pytest.mark.parametrize("size", [1, 8, 224])
def test_a_sample_is_a_square_of_bytes_and_a_number(tmp_path, size):
    data = folder(photos(tmp_path), size=size)
    for samples in (data.train, data.test):
        image, target = samples[1]
        assert image.shape == (3, size, size)
        assert image.dtype == torch.uint8
        assert image.is_contiguous()
        assert type(target) is int
        with pytest.raises(IndexError):
            samples[len(samples)]


@pytest.mark.parametrize("name", ["val", "validation", "test"])
def test_the_test_images_may_lie_in_any_of_three_folders(tmp_path, name):
    photos(tmp_path)
    (tmp_path / "val").rename(tmp_path / name)
    assert len(folder(tmp_path).test) == 4


def test_capital_suffixes_and_deeper_folders_count_and_other_files_do_not(tmp_path):
    photos(tmp_path, train=2)
    write(tmp_path / "train/cat/a/b/deep.PNG")
    write(tmp_path / "train/cat/._hidden.jpg")
    write(tmp_path / "train/.hidden/x.jpg")
    (tmp_path / "train/cat/Thumbs.db").write_bytes(b"")
    (tmp_path / "train/README.txt").write_text("")
    train = folder(tmp_path).train
    assert [train.path(n).name for n in range(len(train))] == ["0.jpg", "deep.PNG", "1.jpg"]


def test_links_are_followed(tmp_path):
    photos(tmp_path / "real")
    (tmp_path / "linked/train").mkdir(parents=True)
    (tmp_path / "linked/train/cat").symlink_to(tmp_path / "real/train/cat")
    (tmp_path / "linked/val/cat").mkdir(parents=True)
    (tmp_path / "linked/val/cat/0.jpg").symlink_to(tmp_path / "real/val/cat/0.jpg")
    data = folder(tmp_path / "linked")
    assert (len(data.train), len(data.test)) == (6, 1)
    assert data.test[0][0].shape == (3, 224, 224)


def test_a_link_that_leads_back_is_refused(tmp_path):
    photos(tmp_path)
    (tmp_path / "train/cat/again").symlink_to(tmp_path / "train/cat")
    with pytest.raises(DataError, match="cannot be listed"):
        folder(tmp_path)


def test_names_may_be_any_bytes(tmp_path):
    photos(tmp_path, train=2)
    strange = os.fsencode(tmp_path) + b"/train/cat/\xff \xc3\xa4.jpg"
    os.rename(tmp_path / "train/cat/0.jpg", strange)
    train = folder(tmp_path, samples=2).train
    assert os.fsencode(train.path(0)) == strange
    assert train[0][1] == 0


def test_a_data_set_travels_to_another_process(tmp_path):
    train = folder(photos(tmp_path), size=8).train
    copy = pickle.loads(pickle.dumps(train))
    random.seed(1)
    expected = train[3]
    random.seed(1)
    assert torch.equal(copy[3][0], expected[0])


# Without splits


def flat(root: Path, number: int = 60) -> Path:
    for n in range(number):
        write(root / ("cat", "dog", "emu")[n % 3] / f"{n}.png", Image.new("RGB", (2, 2)))
    return root


def sides(data) -> tuple[set[str], set[str]]:
    names = [
        {s.path(n).relative_to(s.files.root).as_posix() for n in range(len(s))}
        for s in (data.train, data.test)
    ]
    return names[0], names[1]


def test_a_share_is_kept_for_the_test_by_name_alone(tmp_path):
    train, test = sides(folder(flat(tmp_path / "a"), test_share=0.3))
    assert not train & test
    assert len(train | test) == 60
    # Binomial with mean 18 and deviation 3.5; the names are fixed, so this is no chance.
    assert 8 <= len(test) <= 28
    assert sides(folder(flat(tmp_path / "elsewhere"), test_share=0.3)) == (train, test)


def test_an_image_stays_on_its_side_when_others_come_and_the_share_grows(tmp_path):
    train, test = sides(folder(flat(tmp_path), test_share=0.3))
    more_train, more_test = sides(folder(flat(tmp_path, 90), test_share=0.3))
    assert train < more_train
    assert test < more_test
    assert test < sides(folder(flat(tmp_path, 60), test_share=0.6))[1]


def test_the_split_is_this_one(tmp_path):
    # A change would move test images into the training of a run that is resumed.
    _, test = sides(folder(flat(tmp_path, 12), test_share=0.3))
    assert sorted(test) == ["cat/3.png", "dog/1.png", "emu/11.png"]


def test_train_alone_is_split_as_well(tmp_path):
    flat(tmp_path / "train")
    assert folder(tmp_path, test_share=0.3).train.classes == ["cat", "dog", "emu"]


def test_train_may_be_the_name_of_a_class(tmp_path):
    flat(tmp_path)
    (tmp_path / "emu").rename(tmp_path / "train")
    assert folder(tmp_path, test_share=0.3).train.classes == ["cat", "dog", "train"]


def test_samples_are_spread_over_the_classes_and_stay_in_order(tmp_path):
    flat(tmp_path / "train")
    flat(tmp_path / "val")
    data = folder(tmp_path, samples=30, test_samples=20)
    train, test = sides(data)
    assert (len(train), len(test)) == (30, 20)
    assert test < train
    names = [data.train.path(n).as_posix() for n in range(30)]
    assert names == sorted(names)
    assert set(data.train.files.targets.tolist()) == {0, 1, 2}


# How an image is cut

LENGTHS = st.integers(1, 3000)


@given(
    width=LENGTHS,
    height=LENGTHS,
    area=st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)).map(lambda a: (min(a), max(a))),
    seed=st.integers(0, 99),
)
def test_a_random_part_lies_in_the_image(width, height, area, seed):
    random.seed(seed)
    left, top, right, bottom = random_box(width, height, area)
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height


@given(width=st.integers(200, 600), height=st.integers(200, 600), seed=st.integers(0, 999))
def test_a_random_part_has_the_area_and_the_aspect_that_were_asked_for(width, height, seed):
    random.seed(seed)
    left, top, right, bottom = random_box(width, height, (0.1, 0.3))
    across, down = right - left, bottom - top
    # Sides of 50 pixels or more are rounded by half a pixel: 1% each. At most 3 to 1, so that
    # ten tries without a fit do not come up.
    assert 0.098 <= across * down / (width * height) <= 0.306
    assert 0.98 * 3 / 4 <= across / down <= 1.02 * 4 / 3


def test_of_a_thin_image_the_middle_is_taken():
    random.seed(0)
    assert random_box(3000, 30, (0.5, 1.0)) == (1480, 0, 1520, 30)
    assert random_box(30, 3000, (0.5, 1.0)) == (0, 1480, 30, 1520)


@given(width=LENGTHS, height=LENGTHS, share=st.floats(0.1, 1))
def test_the_middle_is_a_square_in_the_image(width, height, share):
    left, top, right, bottom = centre_box(width, height, share)
    assert right - left == pytest.approx(min(width, height) * share)
    assert bottom - top == pytest.approx(min(width, height) * share)
    assert left == pytest.approx(width - right)
    assert top == pytest.approx(height - bottom)


def test_a_test_image_is_resized_by_its_shorter_side_and_cut_in_the_middle(tmp_path):
    image = gradient(140, 100)
    write(tmp_path / "train/cat/1.png", image)
    write(tmp_path / "val/cat/1.png", image)
    found = folder(tmp_path, size=40, resize=50).test[0][0]
    resized = image.resize((70, 50), Image.Resampling.BILINEAR)
    expected = torch.from_numpy(np.array(resized.crop((15, 5, 55, 45)))).permute(2, 0, 1).int()
    # Bytes are rounded once here and there.
    assert (found.int() - expected).abs().max() <= 1


def test_training_draws_another_part_each_time_and_testing_does_not(tmp_path):
    data = folder(photos(tmp_path), size=16)
    assert len({data.train[0][0].numpy().tobytes() for _ in range(5)}) == 5
    assert torch.equal(data.test[0][0], data.test[0][0])


@pytest.mark.parametrize("orientation", [1, 6])
@pytest.mark.parametrize("draw", range(6))
def test_a_large_jpeg_is_decoded_smaller_and_still_cut_at_the_same_place(
    tmp_path, monkeypatch, draw, orientation
):
    image = gradient(1203, 905)
    exif = Image.Exif()
    exif[0x0112] = orientation
    for split in ("train", "val"):
        write(tmp_path / split / "cat/1.jpg", image, quality=95, exif=exif)
        write(tmp_path / split / "dog/1.png", image, exif=exif)
    decoded = []
    transform = Image.Image.resize
    monkeypatch.setattr(
        Image.Image,
        "resize",
        lambda self, *args, **kw: decoded.append(self.width) or transform(self, *args, **kw),
    )
    data = folder(tmp_path, size=64, area=(0.5, 1.0))
    for samples in (data.train, data.test):
        random.seed(draw)
        jpeg = samples[0][0]
        random.seed(draw)
        png = samples[1][0]
        # The steepest gradient has 0.3 levels per pixel of the original, and a pixel of the
        # quarter holds four; JPEG itself errs by a few levels.
        assert (jpeg.int() - png.int()).abs().max() <= 6
    assert all(4 * j <= p + 3 for j, p in zip(decoded[::2], decoded[1::2], strict=True))


def test_a_small_jpeg_is_decoded_whole(tmp_path):
    image = gradient(100, 80)
    found = one(tmp_path, image, "1.jpg", size=60, quality=95)
    assert (found.int() - one(tmp_path / "png", image, size=60).int()).abs().max() <= 4


# Kinds of images


@pytest.mark.parametrize("kind", ["jpg", "png", "tif", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_stand_as_the_camera_was_held(tmp_path, orientation, kind):
    exif = Image.Exif()
    exif[0x0112] = orientation
    name = f"1.{kind}"
    found = one(tmp_path, gradient(60, 40), name, size=30, exif=exif, quality=95)
    with Image.open(tmp_path / "val/cat" / name) as opened:
        seen = ImageOps.exif_transpose(opened).convert("RGB")
    expected = one(tmp_path / "seen", seen, size=30)
    assert (found.int() - expected.int()).abs().max() <= 1


@pytest.mark.parametrize(
    ("mode", "colour", "name", "expected"),
    [
        ("L", 77, "1.png", (77, 77, 77)),
        ("L", 77, "1.jpg", (77, 77, 77)),
        ("1", 1, "1.png", WHITE),
        ("LA", (77, 255), "1.png", (77, 77, 77)),
        ("RGBA", (*RED, 255), "1.png", RED),
        ("RGBA", (*RED, 0), "1.png", WHITE),
        ("CMYK", (0, 0, 0, 0), "1.jpg", WHITE),
        ("CMYK", (0, 0, 0, 255), "1.tif", (0, 0, 0)),
        ("YCbCr", (0, 128, 128), "1.jpg", (0, 0, 0)),
    ],
)
def test_every_mode_becomes_rgb(tmp_path, mode, colour, name, expected):
    assert colours(one(tmp_path, Image.new(mode, (20, 20), colour), name)) == {expected}


@pytest.mark.parametrize("kind", ["png", "gif"])
@pytest.mark.parametrize("transparency", [None, 1, b"\xff\x00"], ids=str)
def test_palettes_become_rgb_and_what_shows_through_white(tmp_path, kind, transparency):
    if kind == "gif" and isinstance(transparency, bytes):
        pytest.skip("a GIF has one transparent colour")
    image = Image.new("P", (20, 20), 0)
    image.putpalette([*BLUE, *GREEN])
    image.paste(1, (0, 0, 20, 10))
    options = {} if transparency is None else {"transparency": transparency}
    found = one(tmp_path, image, f"1.{kind}", size=4, **options)
    assert tuple(found[:, 3, 0].tolist()) == BLUE
    assert tuple(found[:, 0, 0].tolist()) == (GREEN if transparency is None else WHITE)


def test_damaged_camera_data_do_not_spoil_an_image(tmp_path):
    broken = b"Exif\0\0II*\0\x08\0\0\0\x05\0\x12\x01"
    assert colours(one(tmp_path, Image.new("RGB", (20, 20)), "1.jpg", exif=broken)) == {(0, 0, 0)}


def test_more_than_8_bits_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"val/cat/1.tif has pixels of more than 8 bits \(mode F\)"):
        one(tmp_path, Image.new("F", (20, 20)), "1.tif")


# What is refused


def broken(path: Path) -> dict[str, bytes]:
    whole = path.read_bytes()
    return {
        "cut": whole[: len(whole) // 2],
        "header only": whole[:30],
        "text": b"<html>not found</html>",
        "empty": b"",
    }


@pytest.mark.parametrize("kind", ["jpg", "png"])
@pytest.mark.parametrize("case", ["cut", "header only", "text", "empty"])
def test_a_broken_file_is_refused_by_name_with_what_to_do(tmp_path, case, kind):
    path = write(tmp_path / f"train/cat/1.{kind}", gradient(200, 200))
    write(tmp_path / "val/cat/1.png")
    path.write_bytes(broken(path)[case])
    message = f"^{path} cannot be read as an image: .*Replace the file, or move it out"
    with pytest.raises(DataError, match=message):
        folder(tmp_path).train[0]


def test_a_file_that_is_gone_is_refused_by_name(tmp_path):
    train = folder(photos(tmp_path)).train
    train.path(2).unlink()
    with pytest.raises(DataError, match=r"2.jpg cannot be read as an image: FileNotFoundError"):
        train[2]


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match="nowhere does not exist"):
        folder(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"1.jpg is a file. Give the folder"):
        folder(write(tmp_path / "1.jpg"))


def test_images_without_folders_of_classes_are_refused(tmp_path):
    write(tmp_path / "train/1.jpg")
    write(tmp_path / "val/2.jpg")
    with pytest.raises(DataError, match=r"train holds no folders. Put .* such as .*cat/1.jpg"):
        folder(tmp_path)
    with pytest.raises(DataError, match="holds no folders"):
        folder(tmp_path / "train", test_share=0.1)


@pytest.mark.parametrize("split", ["train", "val"])
def test_classes_without_images_are_refused_by_name(tmp_path, split):
    photos(tmp_path)
    (tmp_path / "train/emu").mkdir(exist_ok=True)
    (tmp_path / "train/emu/list.txt").write_text("")
    if split == "val":
        write(tmp_path / "train/emu/1.jpg")
        (tmp_path / "val/emu").mkdir()
    with pytest.raises(DataError, match=rf"{split} holds classes without images \(.*\): emu\."):
        folder(tmp_path)


def test_classes_that_only_the_test_has_are_refused_by_name(tmp_path):
    photos(tmp_path)
    for name in "abcdef":
        write(tmp_path / "val" / name / "1.jpg")
    with pytest.raises(DataError, match=r"not trained on: a, b, c, d and 2 more"):
        folder(tmp_path)


def test_classes_that_only_the_training_has_are_fine_and_keep_their_numbers(tmp_path):
    photos(tmp_path)
    write(tmp_path / "train/ape/1.jpg")
    data = folder(tmp_path)
    assert data.test.classes == ["ape", "cat", "dog"]
    assert data.test.files.targets.tolist() == [1, 1, 2, 2]


def test_a_folder_without_test_images_is_answered_with_test_share(tmp_path):
    with pytest.raises(DataError, match=r"one of val, validation, test.*test_share=0.1"):
        folder(flat(tmp_path))


def test_test_share_beside_test_images_is_refused(tmp_path):
    with pytest.raises(DataError, match="has its own test images in val"):
        folder(photos(tmp_path), test_share=0.1)


@pytest.mark.parametrize(("share", "side"), [(1e-9, "test"), (1 - 1e-9, "train")])
def test_a_share_that_leaves_nothing_is_refused(tmp_path, share, side):
    with pytest.raises(DataError, match=f"leaves none to {side} on"):
        folder(flat(tmp_path, 6), test_share=share)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": 0}, "size=0: give 1 or more"),
        ({"size": 64, "resize": 63}, "resize=63 leaves test images smaller than size=64: give 64"),
        ({"area": (0.0, 1.0)}, r"area=\(0.0, 1.0\): give a range"),
        ({"area": (0.5, 0.4)}, "give a range"),
        ({"test_share": 1.0}, "test_share=1.0: give a share"),
        ({"samples": 0}, "^samples=0, but there are 12 .* give 1 to 12"),
        ({"test_samples": 5}, "^test_samples=5, but there are 4"),
    ],
    ids=str,
)
def test_numbers_that_cannot_be_are_refused(tmp_path, given, message):
    with pytest.raises(DataError, match=message):
        folder(photos(tmp_path), **given)


def test_without_pillow_the_way_to_install_it_is_named(tmp_path, monkeypatch):
    photos(tmp_path)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match=r"pip install 'lockstep\[images\]'"):
        folder(tmp_path)


def test_importing_the_data_does_not_import_pillow():
    code = "import sys, lockstep.engine.recipe.known; sys.exit('PIL' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# In a run


def test_batches_do_not_depend_on_the_workers(tmp_path):
    data = folder(photos(tmp_path), size=8)
    requests = [
        Request(epoch, torch.arange(12).view(3, 4)[n]) for epoch in (0, 1) for n in range(3)
    ]
    seen = []
    for workers in (0, 1, 2):
        finish = Finish(7, (flip,), data.prepare)
        loader = make_loader(
            data.train, torch.device("cpu"), finish, watch=Watch(), workers=workers
        )
        seen.append([(x.clone(), y.clone()) for x, y in loader.batches(requests)])
    for other in seen[1:]:
        for (x, y), (a, b) in zip(seen[0], other, strict=True):
            assert torch.equal(x, a)
            assert torch.equal(y, b)
    assert not torch.equal(seen[0][0][0], seen[0][3][0])  # another epoch cuts other parts


def recipe(root: Path, classes: int = 2) -> Recipe:
    return Recipe(
        name="photos",
        model=partial(models.wideresnet, depth=10, width=1, classes=classes),
        data=partial(folder, root, size=8),
        augment=(flip,),
        loss=cross_entropy,
        metrics={"accuracy": accuracy},
        optimizer=torch.optim.SGD,
        learning_rate=0.05,
        global_batch=8,
        shards=2,
        epochs=2,
    )


def test_a_folder_trains_to_the_same_bits_on_any_number_of_replicas_and_workers(tmp_path):
    wanted = recipe(photos(tmp_path / "photos", train=13, val=5))
    runs = [
        train(wanted, tmp_path / f"{replicas}-{workers}", replicas, exact=True, workers=workers)
        for replicas, workers in ((1, 0), (1, 2), (2, 1))
    ]
    assert len({(r["weights_sha256"], *r["metrics"].values()) for r in runs}) == 1


def test_a_model_with_too_few_classes_is_refused_by_name(tmp_path):
    with pytest.raises(RecipeError, match=r"1 scores, the data have 2 classes"):
        train(recipe(photos(tmp_path / "photos"), classes=1), tmp_path / "run", workers=0)


def test_a_folder_can_be_named_in_a_flag(tmp_path):
    text = f"folder('{photos(tmp_path)}', size=16, area=(0.25, 1))"
    assert find_function("data", text, KNOWN["data"])().train[0][0].shape == (3, 16, 16)


def test_the_recipe_of_the_guide_trains(tmp_path):
    text = (ROOT / "docs" / "guides" / "data.md").read_text()
    snippet = re.search(r"<!-- run: photos -->\n```python\n(.*?)```", text, re.DOTALL)
    assert snippet
    (tmp_path / "photos.py").write_text(snippet[1])
    flat(tmp_path / "photos")
    command = [sys.executable, "-m", "lockstep", "train", "photos.py", "--json", "--out", "run"]
    command += ["--device", "cpu", "--replicas", "2", "--max-steps", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "finished"
