def reconstruction(guess, x):
    error = ((guess - x) ** 2).sum()
    return error / guess.size(0)


def weight_penalty(model):
    return 1e-3 * sum(p.pow(2).sum() for p in model.parameters())
