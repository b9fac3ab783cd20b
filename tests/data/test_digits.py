import torch

from lockstep.data.digits import digits


def test_digits_are_split_into_1437_and_360_with_every_class_in_both():
    data = digits()
    assert (len(data.train), len(data.test)) == (1437, 360)
    for part in (data.train, data.test):
        assert part.inputs.dtype == torch.uint8
        assert part.inputs.shape[1:] == (1, 8, 8)
        assert int(part.inputs.max()) == 16
        assert part.targets.dtype == torch.int64
        assert int(part.targets.bincount(minlength=10).min()) >= 26


def test_the_first_images_are_those_of_scikit_learn():
    # load_digits().target[:11] is 0 1 2 3 4 5 6 7 8 9 0; numbers 0, 5 and 10 are test images.
    data = digits()
    assert data.test.targets[:3].tolist() == [0, 5, 0]
    assert data.train.targets[:8].tolist() == [1, 2, 3, 4, 6, 7, 8, 9]
    assert data.test.inputs[0, 0, 0].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]


def test_prepared_training_images_have_mean_zero_and_deviation_one():
    data = digits()
    images = data.prepare(data.train.inputs)
    # The constants carry five digits.
    assert abs(float(images.mean())) < 1e-4
    assert abs(float(images.std()) - 1) < 1e-3


def test_two_calls_give_the_same_images():
    assert torch.equal(digits().train.inputs, digits().train.inputs)
