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
    RATE = Slider("Learning rate", steps(0.001, 0.2, 40), steps(0.001, 0.2, 40)[17])
    NOISE = Slider("Noise", [0.0, 1.0, 2.0, 3.0, 5.0, 8.0], 3.0)
    SIZES = [1, 2, 4, 7, 10, 16, 25, 32, 50, 64, 100]


@app.cell
def _():
    page.show(page.head(), page.text("neuron"))


@app.cell
def _():
    page.picture(
        loss_surface.flat,
        page.text("neuron seen"),
        height=430,
        rate=RATE,
        batch=Slider("Batch size", SIZES, 100),
        noise=NOISE,
        epochs=Slider("Epochs", [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000], 50),
        own=Switch("Surface of the last step's batch alone"),
    )


@app.cell
def _():
    page.picture(
        loss_surface.solid,
        height=430,
        rate=RATE,
        batch=Slider("Batch size", SIZES, 10),
        noise=NOISE,
        epochs=Slider("Epochs", [1, 2, 5, 10, 20, 50, 100], 20),
    )


@app.cell
def _():
    _one, _all = (f"{1e6 * step_seconds(size):.3g}" for size in (1, 100))
    _picture = page.picture(
        loss_surface.losses,
        page.text("epochs seen", one=_one, all=_all),
        rate=RATE,
        batch=Slider("Batch size in between", SIZES[1:-1], 10),
        noise=NOISE,
        epochs=Slider("Epochs", [5, 10, 20, 50, 100, 200], 50),
        against=Choice("Against", loss_surface.AXES, loss_surface.EPOCHS),
    )
    page.show(page.text("epochs"), _picture)


@app.cell
def _():
    convergence = page.editor(CONVERGENCE)
    page.show(mo.md(CONVERGENCE.asks), convergence)
    return (convergence,)


@app.cell
def _(convergence):
    page.judged(CONVERGENCE, convergence)


@app.cell
def _():
    cut = page.editor(BATCHES)
    page.show(mo.md(BATCHES.asks), cut)
    return (cut,)


@app.cell
def _(cut):
    page.judged(BATCHES, cut)


@app.cell
def _():
    go = page.button("batches", "Train at eight batch sizes", "15 s")
    page.show(page.text("batch sizes"), go)
    return (go,)


@app.cell
def _(go):
    sizes = page.measured("batches", batch_sizes.BatchSizes, batch_sizes.measure, go)
    _targets = [round(0.80 + 0.01 * k, 2) for k in range(18)]
    page.show(
        page.picture(partial(batch_sizes.throughput, sizes), height=320),
        page.picture(
            partial(batch_sizes.time_to, sizes),
            page.text("batch sizes seen", device=sizes.device),
            target=Slider("Accuracy", _targets, 0.92),
        ),
    )
    return (sizes,)


@app.cell
def _(sizes):
    answers = page.ask(questions(sizes))
    answers
    return (answers,)


@app.cell
def _(answers):
    page.marked(answers)


@app.cell
def _():
    page.text("remember")


if __name__ == "__main__":
    app.run()
