"""Lab 1: gradient descent, SGD and batch size."""
# /// script
# [tool.marimo.display]
# theme = "system"
# ///

import marimo

app = marimo.App(width="medium", app_title="Lab 1: Gradient descent, SGD and batch size")

with app.setup:
    from functools import partial

    import marimo as mo

    from lockstep.labs.lab1_descent import batch_sizes, loss_surface
    from lockstep.labs.lab1_descent.neuron import step_seconds
    from lockstep.labs.lab1_descent.quiz import questions
    from lockstep.labs.lab1_descent.tasks import BATCHES, CONVERGENCE
    from lockstep.labs.shared.page import Page
    from lockstep.labs.shared.picture import Choice, Slider, Switch, steps

    page = Page(1)
    RATES = steps(0.001, 0.2, 40)
    SIZES = [1, 2, 4, 7, 10, 16, 25, 32, 50, 64, 100]


@app.cell
def _():
    page.head()
    return


@app.cell
def _():
    mo.md(r"""
    ## The linear neuron

    The smallest model there is: $\hat y = w x + b$, and 100 samples of $y = 10\,x + 2$ with noise. Its loss, the mean
    squared error, is a bowl over two weights, so that all of training can be seen. A step goes down the slope that a
    **batch** of samples shows:

    $$w \leftarrow w - \eta\,\frac{\partial L}{\partial w} \qquad b \leftarrow b - \eta\,\frac{\partial L}{\partial b}$$

    With all 100 samples in a batch this is *gradient descent*, with one *stochastic gradient descent*; in between, and
    in practice, *mini-batches*. Move the sliders; press Play to watch the path being made.
    """)
    return


@app.cell
def _():
    page.picture(
        loss_surface.flat,
        height=430,
        rate=Slider("Learning rate", RATES, RATES[17]),
        batch=Slider("Batch size", SIZES, 100),
        noise=Slider("Noise", [0.0, 1.0, 2.0, 3.0, 5.0, 8.0], 3.0),
        epochs=Slider("Epochs", [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000], 50),
        own=Switch("Surface of the last step's batch alone"),
    )
    return


@app.cell
def _():
    mo.md("""
    **What to see.** The bowl is a long valley: across it the slope is steep, along it flat. Gradient descent finds the
    valley in a few steps and then creeps. Raise the rate: it swings from wall to wall, and beyond a limit it leaves the
    picture. At batch 1 the path trembles and never comes to rest: every sample has a valley of its own. Turn on the switch
    at batch 1: the loss of one sample is a trough without an end.
    """)
    return


@app.cell
def _():
    page.picture(
        loss_surface.solid,
        height=430,
        rate=Slider("Learning rate", RATES, RATES[17]),
        batch=Slider("Batch size", SIZES, 10),
        noise=Slider("Noise", [0.0, 1.0, 2.0, 3.0, 5.0, 8.0], 3.0),
        epochs=Slider("Epochs", [1, 2, 5, 10, 20, 50, 100], 20),
    )
    return


@app.cell
def _():
    mo.md("""
    ## Epochs, steps, time

    The same number of epochs is the same work, but not the same number of steps: at batch 1 an epoch has a hundred of
    them, at batch 100 one. And what does a step cost at each size? The loss over all samples:
    """)
    return


@app.cell
def _():
    page.picture(
        loss_surface.losses,
        rate=Slider("Learning rate", RATES, RATES[17]),
        batch=Slider("Batch size in between", SIZES[1:-1], 10),
        noise=Slider("Noise", [0.0, 1.0, 2.0, 3.0, 5.0, 8.0], 3.0),
        epochs=Slider("Epochs", [5, 10, 20, 50, 100, 200], 50),
        against=Choice("Against", loss_surface.AXES, loss_surface.EPOCHS),
    )
    return


@app.cell
def _():
    _one, _all = (1e6 * step_seconds(size) for size in (1, 100))
    mo.md(f"""
    **What to see.** By epochs, batch 1 has learnt nearly all before gradient descent has gone anywhere. By steps they go down
    together: a step on one sample is as long as one on a hundred, only less certain, so its curve is rough and never comes to rest.
    By time it is the same picture once more: a step takes {_one:.3g} µs on one sample and {_all:.3g} µs on a hundred, measured here,
    because nearly all of it is not arithmetic. So a small batch learns more from each sample, and a larger one is the smoother way
    in the same time, as long as it costs no more. How long that is, for a real network, is measured below.
    """)
    return


@app.cell
def _():
    convergence = page.editor(CONVERGENCE)
    mo.vstack([mo.md(CONVERGENCE.asks), convergence])
    return (convergence,)


@app.cell
def _(convergence):
    mo.vstack([page.judged(CONVERGENCE, convergence), page.answer(CONVERGENCE)])
    return


@app.cell
def _():
    cut = page.editor(BATCHES)
    mo.vstack([mo.md(BATCHES.asks), cut])
    return (cut,)


@app.cell
def _(cut):
    mo.vstack([page.judged(BATCHES, cut), page.answer(BATCHES)])
    return


@app.cell
def _():
    mo.md("""
    ## How large a batch?

    A real network now: 1,437 handwritten digits, a perceptron with two hidden layers, the same rate at every batch size.
    The larger the batch, the more images go through per second: the costs of a step are shared by more samples. But what
    counts is the time to an accuracy. It is noisy, so each batch size is run with three seeds; the first epoch, in which
    everything warms up, does not count for the speed. A run stops early: at accuracy 0.97, or when its *patience* ends, eight
    epochs without a better one.
    """)
    return


@app.cell
def _():
    go = page.button("batches", "Train at eight batch sizes", "15 s")
    go
    return (go,)


@app.cell
def _(go):
    sizes = page.measured("batches", batch_sizes.BatchSizes, batch_sizes.measure, go)
    page.picture(partial(batch_sizes.throughput, sizes), height=320)
    return (sizes,)


@app.cell
def _(sizes):
    _targets = [round(0.80 + 0.01 * k, 2) for k in range(18)]
    page.picture(partial(batch_sizes.time_to, sizes), target=Slider("Accuracy", _targets, 0.92))
    return


@app.cell
def _(sizes):
    mo.md(f"""
    **What to see.** Throughput (measured on: {sizes.device}) grows with the batch and then saturates. The time to an accuracy
    falls at first and then rises again: a large batch takes few steps per epoch, and at the same rate a step does not get
    longer because it is more certain. Raise the accuracy: large batches drop out. That the rate must grow with the batch,
    and how far this works, is lab 3.
    """)
    return


@app.cell
def _(sizes):
    asked = questions(sizes)
    answers = page.ask(asked)
    mo.vstack([mo.md("## Quiz"), answers])
    return answers, asked


@app.cell
def _(answers, asked):
    page.marked(asked, answers)
    return


@app.cell
def _():
    mo.md("""
    ## What to remember

    - A batch's gradient is an estimate of the gradient over all samples; a larger batch makes it more certain, not better.
    - The rate has a limit that the steepest direction sets; small batches reach it sooner.
    - The last batch is smaller. Neither drop it nor fill it up without knowing what that does.
    - Images per second is not the goal. Time to accuracy is, and it needs repetition.
    """)
    return


if __name__ == "__main__":
    app.run()
