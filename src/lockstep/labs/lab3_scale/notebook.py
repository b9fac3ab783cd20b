"""Lab 3: training at scale."""
# /// script
# [tool.marimo.display]
# theme = "system"
# ///

import marimo

app = marimo.App(width="medium", app_title="Lab 3: Training at scale")

with app.setup:
    from functools import partial
    from statistics import median

    import marimo as mo

    from lockstep.labs.lab3_scale import (
        accuracy_curves,
        batch_norm,
        critical_batch,
        momentum,
        noise_scale,
        optimizer_pictures,
        optimizers,
        rate_grid,
        rate_grid_map,
        runs,
        speedup,
        throughput,
        warmup,
        warmup_pictures,
    )
    from lockstep.labs.lab3_scale.drawing import including, three
    from lockstep.labs.lab3_scale.quiz import questions
    from lockstep.labs.lab3_scale.tasks import TASK
    from lockstep.labs.shared.page import Page, table
    from lockstep.labs.shared.picture import Choice, Slider, Switch, steps

    page = Page(3)


@app.cell
def _():
    page.head()
    return


@app.cell
def _():
    mo.md(r"""
    ## The scaling ratio

    How many images per second do several replicas make, compared with one? There are two ways to ask. Give each replica **a
    batch of its own**: the global batch grows, and only the exchange of gradients is added to a step. Or **cut one batch**
    for all: the training stays the same, but each replica has less and less to do. Of the latter Amdahl's law says: if a share
    $s$ of a step does not shrink, $N$ replicas are

    $$\frac{1}{s + (1 - s)/N}$$

    times as fast, and never more than $1/s$. Replicas take turns here, and ratios are taken within a round.
    """)
    return


@app.cell
def _():
    go_speed = page.button("throughput", "Measure one replica and several", "10 s")
    go_speed
    return (go_speed,)


@app.cell
def _(go_speed):
    speed = page.measured("throughput", throughput.Throughput, throughput.measure, go_speed)
    table(
        ["replicas", "images per second", "times one replica", "serial share"], speedup.rows(speed)
    )
    return (speed,)


@app.cell
def _(speed):
    _serial = three(speedup.serial_share(speed.replicas[-1], median(speed.ratio(speed.shared)[-1])))
    _bytes = three(speed.gradient_bytes / 1e6)
    _shares = including([0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0], _serial)
    page.picture(
        partial(speedup.figure, speed),
        height=430,
        serial=Slider(
            "Share that does not shrink", _shares, _serial, [f"{s:.1%}" for s in _shares]
        ),
        megabytes=Slider("Gradients, MB", including(steps(0.1, 10_000, 16), _bytes), _bytes),
        speed=Slider("Link, GB/s", [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 12.0, 50.0, 200.0, 450.0], 1.0),
    )
    return


@app.cell
def _(speed):
    mo.md(f"""
    **What to see.** Dots are measured ({speed.model}, on: {speed.device}), lines are what you assume. The orange line starts with the
    share that was found here; move it and watch where 64 replicas end. Then take a model of 1 GB and a link of 0.1 GB/s: the blue
    line leaves the ideal at once. It bends less than the orange one, because with a batch for each the work grows with the
    replicas. A saved run of a workshop made 615 images per second on one GPU and 2,389 on four: 3.88 times, 97% of ideal.
    """)
    return


@app.cell
def _():
    mo.md("""
    ## Accuracy against time

    Images per second are not the goal. Below, a small residual network learns the digits in six runs, each on real replicas: one
    replica with a batch of 32; several with the *same* global batch, which must give the same training in less time; several with
    eight times the batch, and the rate as it was, by the square-root rule, by the linear rule, and by the linear rule with a warmup.
    """)
    return


@app.cell
def _():
    go_runs = page.button("runs", "Train six runs", "20 s")
    go_runs
    return (go_runs,)


@app.cell
def _(go_runs):
    raced = page.measured("runs", runs.Runs, runs.measure, go_runs)
    _names = {f"run{n}": Switch(run.name, on=True) for n, run in enumerate(raced.each())}
    page.picture(
        partial(accuracy_curves.figure, raced),
        height=430,
        axis=Choice("Against", ["seconds", "epochs", "steps"], "seconds"),
        target=Slider("Target accuracy", [0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97], 0.9),
        **_names,
    )
    return (raced,)


@app.cell
def _(raced):
    _same = "the same bits" if raced.identical else "not the same bits, which is an error of ours"
    mo.md(f"""
    **What to see.** The first two runs are the same training. Against epochs their curves nearly lie on each other; after all epochs the
    largest difference of any weight is {raced.difference:.2g}, because sums in another order are rounded otherwise and a training at
    this rate makes much of little. In exact mode the order of the sums is fixed: a few steps on one replica and on {raced.replicas} gave {_same}.
    The large batch makes epochs shorter and takes an eighth of the steps. Whether that is a gain, the axis *seconds* tells, and it
    depends on the rate.
    """)
    return


@app.cell
def _():
    mo.md(r"""
    ## Momentum

    Nearly all of these trainings use it: steps add up, $v \leftarrow m\,v + g$ and $w \leftarrow w - \eta\,v$. A gradient that stays the same
    is counted $1 + m + m^2 + \dots = 1/(1-m)$ times, so momentum 0.9 walks ten times as far. Is it more than a larger rate? Seven momenta
    and ten rates, three seeds each: 210 models, trained at once. Their weights are stacked, and one layer of all of them is one
    batched product.
    """)
    return


@app.cell
def _():
    go_momentum = page.button("momentum", "Train 210 models at once", "3 s")
    go_momentum
    return (go_momentum,)


@app.cell
def _(go_momentum):
    momenta = page.measured("momentum", momentum.Momenta, momentum.measure, go_momentum)
    page.picture(
        partial(momentum.figure, momenta),
        momentum=Slider("Momentum", momenta.momenta, 0.9),
        rate=Slider("Learning rate", momenta.rates, momenta.rates[3]),
    )
    return (momenta,)


@app.cell
def _(momenta):
    page.picture(
        partial(momentum.ends, momenta),
        height=340,
        momentum=Slider("Momentum", momenta.momenta, 0.9),
        along=Switch("Against rate / (1 - momentum)", on=False),
    )
    return


@app.cell
def _(momenta):
    mo.md(f"""
    **What to see.** At a small rate momentum is a gain without a price. Against the plain rate the curves shift to the left as momentum grows; turn
    on the switch, and their left sides fall together: up to there momentum *is* a larger rate. On the right they differ: with
    momentum 0.99 a step that was too long is remembered for a hundred steps. Best without momentum was a rate of
    {momenta.best_rate(0.0):g}, best at 0.9 one of {momenta.best_rate(0.9):g}.
    """)
    return


@app.cell
def _():
    mo.md(r"""
    ## Rate and batch size

    More replicas mean a larger global batch. What does it do to the best rate? The **linear rule** says: $k$ times the batch, $k$ times the
    rate, as one step then replaces $k$. The **square-root rule** says $\sqrt k$, as the noise of a step then stays. Neither is a law. The grid: ten
    rates, seven batch sizes, with and without momentum, three seeds: 420 trainings.
    """)
    return


@app.cell
def _():
    go_grid = page.button("explore", "Train 420 models", "10 s")
    go_grid
    return (go_grid,)


@app.cell
def _(go_grid):
    grid = page.measured("explore", rate_grid.Explored, rate_grid.measure, go_grid)
    page.picture(
        partial(rate_grid_map.figure, grid),
        height=460,
        budget=Slider(
            "Budget",
            rate_grid_map.BUDGETS,
            ("epochs", 3),
            [f"{n} {kind}" for kind, n in rate_grid_map.BUDGETS],
        ),
        momentum=Slider("Momentum", grid.momenta, grid.momenta[-1]),
        batch=Slider("Rules start at batch", grid.batches, grid.batches[0]),
        rate=Slider("and rate", grid.rates, grid.rates[1]),
    )
    return (grid,)


@app.cell
def _():
    mo.md(f"""
    **What to see.** Numbers are accuracies in percent, rings mark the best rate of each batch size, {rate_grid_map.LOST} is where a training is lost. With
    momentum the rings climb with the batch, for a while as steeply as the linear rule; without it they soon reach the rate above which everything
    is lost, and stay. Give all the same *epochs*: large batches are worse, even at their best rate, because they take fewer steps.
    Give all the same *steps*: large batches are better, and cost more samples. Try to put a rule through the rings.
    """)
    return


@app.cell
def _():
    mo.md(r"""
    ## Divergence and warmup

    The linear rule fails first at the start: the weights change quickly there, and one long step is *not* worth $N$ short ones. A gradual
    **warmup** begins at the rate of one replica, $\eta/N$, and rises to $\eta$ in a straight line. $N$ is the world size, all replicas of
    all nodes; whoever divides by the GPUs of one node starts too high. Below: replicas of 16 samples each, seven rates near the edge, five lengths
    of the warmup, four seeds.
    """)
    return


@app.cell
def _():
    go_warmup = page.button("warmup", "Train 420 models near the edge", "8 s")
    go_warmup
    return (go_warmup,)


@app.cell
def _(go_warmup):
    warmed = page.measured("warmup", warmup.Warmups, warmup.measure, go_warmup)
    edge = warmup.found(warmed)
    page.picture(
        partial(warmup_pictures.figure, warmed),
        height=460,
        replicas=Slider("Replicas", warmed.replicas, edge.replicas),
        rate=Slider("Learning rate", warmed.rates, edge.rate),
        warmup=Slider("Warmup, epochs", warmed.warmups, edge.warmup),
        per_node=Slider("GPUs of a node", [1, 2, 4, 8], 2),
    )
    return edge, warmed


@app.cell
def _(edge, warmed):
    page.picture(
        partial(warmup_pictures.ends, warmed),
        height=340,
        replicas=Slider("Replicas", warmed.replicas, edge.replicas),
        rate=Slider("Learning rate", warmed.rates, edge.rate),
    )
    return


@app.cell
def _(edge):
    mo.md(f"""
    **What to see.** The picture opens where a warmup changed most: {edge.replicas} replicas at a rate of {edge.rate:g} ended at
    {edge.without:.0%} without and at {edge.rescued:.0%} with {edge.warmup} epochs of it. Move the rate: at the low end nobody needs a warmup, at the
    high end it saves few. It moves the edge, it does not remove it. Too long a warmup leaves too few epochs at the full rate.
    """)
    return


@app.cell
def _():
    rate_at = page.editor(TASK)
    mo.vstack([mo.md("### Task: the rate of a step\n" + TASK.asks), rate_at])
    return (rate_at,)


@app.cell
def _(rate_at):
    mo.vstack([page.judged(TASK, rate_at), page.answer(TASK)])
    return


@app.cell
def _():
    _rows = [[name, f"${formula}$"] for name, formula in optimizer_pictures.FORMULAS.items()]
    mo.vstack(
        [
            mo.md(r"""
    ## A rate for every layer

    One rate must suit all layers, and the most sensitive one decides. The ratio $|w|/|g|$ of a layer's weights to its gradient differs between
    layers and changes along the training. *Adam* divides the gradient of every single weight by its usual size. Layer-wise optimizers
    make the step of each layer a share of its own length, or divide its gradient by its length; LAMB does so with the step $u$ of Adam.
    By what the gradient of a layer is multiplied:
    """),
            table(["optimizer", "factor of the layer's gradient"], _rows),
            mo.md(r"""
    The network has four layers now, and a batch of 256: thirty steps for all of the training.
    """),
        ]
    )
    return


@app.cell
def _():
    go_layers = page.button("optimizers", "Train five optimizers at twelve rates", "8 s")
    go_layers
    return (go_layers,)


@app.cell
def _(go_layers):
    found = page.measured("optimizers", optimizers.Optimizers, optimizers.measure, go_layers)
    rule = found.rates[found.by_rule()]
    page.picture(
        partial(optimizer_pictures.figure, found),
        rate=Slider("Learning rate", found.rates, rule),
        own=Switch("Each at its own best rate", on=False),
    )
    return found, rule


@app.cell
def _(found, rule):
    page.picture(
        partial(optimizer_pictures.ends, found),
        height=340,
        rate=Slider("Learning rate", found.rates, rule),
    )
    return


@app.cell
def _(found):
    page.picture(
        partial(optimizer_pictures.layers, found),
        height=340,
        what=Choice(
            "Of each layer", ["step", "ratio"], "step", ["how far a step moves it", "|w| / |g|"]
        ),
        step=Slider("Step", list(range(1, found.steps[-1] + 1)), 6),
    )
    return


@app.cell
def _(found, rule):
    _ends = found.curves[:, -1].mean(2)
    _rows = [
        [
            name,
            f"{_ends[n, found.by_rule()]:.1%}",
            f"{found.rates[found.best(name)]:g}",
            f"{_ends[n].max():.1%}",
        ]
        for n, name in enumerate(found.names)
    ]
    mo.vstack(
        [
            table(["optimizer", f"at rate {rule:g}", "best rate", "at its best rate"], _rows),
            mo.md(f"""
    **What to see.** {rule:g} is SGD's rate by the linear rule. The same number means other things to other optimizers: for LARS it is a share of
    $|w|$ (times its trust of 0.02), for LARC an upper end that is never exceeded, for LAMB the share of $|w|$ itself, for NovoGrad about the length
    of a step. So look at each one's own best rate, and at how wide its curve is. The last picture shows the idea: $|w|/|g|$ differs from layer to layer,
    so SGD moves them by different shares of their length, LARS and LAMB all by nearly the same.
    """),
        ]
    )
    return


@app.cell
def _():
    mo.md(r"""
    ## The noise scale and the critical batch

    When does a larger batch stop to pay? A gradient over $B$ samples is the true one plus noise that shrinks with $B$. The batch at which the two
    are equal is the **noise scale**. Steps to a target follow

    $$S = S_{min}\left(1 + \frac{B_{crit}}{B}\right)$$

    and $B_{crit}$ can be found in two ways: by a sweep, from the grid above, at the best rate of each batch; or from the noise scale of *one* training.
    Two batch sizes tell it: the shards of a batch against the whole, or, more crudely, a step against the next.
    """)
    return


@app.cell
def _():
    go_noise = page.button("noise", "Watch the noise of one training", "1 s")
    go_noise
    return (go_noise,)


@app.cell
def _(go_noise, grid):
    noises = page.measured(
        "noise", noise_scale.Noises, lambda report: noise_scale.measure(report, grid), go_noise
    )
    page.picture(partial(critical_batch.along, noises), height=320)
    return (noises,)


@app.cell
def _(grid, noises):
    page.picture(
        partial(critical_batch.figure, grid, noises),
        height=480,
        target=Slider("Test loss to reach", noise_scale.TARGETS, noise_scale.TARGETS[-2]),
        batch=Slider("Batch size", [8, 16, 32, 64, 128, 256, 512, 1024], 128),
    )
    return


@app.cell
def _(grid, noises):
    _fits = [
        (target, noise_scale.swept(grid, target))
        for target in (noise_scale.TARGETS[0], noise_scale.TARGETS[-1])
    ]
    _found = [
        f"{fit[0].critical_batch:.0f} for a loss of {target:g}" for target, fit in _fits if fit
    ]
    mo.md(f"""
    **What to see.** Dots are the sweep, the blue line its fit; the red one knows a training at batch {noises.batch} and none of the dots. Far left,
    twice the batch halves the steps and the samples stay the same. Far right the steps stay, and every doubling doubles the
    samples. Comparing steps is cruder than comparing shards: the weights move in between, and that counts as noise. The critical batch
    is no property of the model alone; it depends on how far you train: by the sweep {", ".join(_found)}.
    """)
    return


@app.cell
def _():
    mo.md("""
    ## Batch norm and small local batches

    Batch norm divides by the spread of the batch. Which batch? With data parallelism each replica sees its own part. The global batch stays 128
    here, and is cut for more and more replicas: down to two samples for each of 64. Statistics are taken in three ways: by each replica
    over its own samples; over shards of a fixed size, whoever computes them; synchronised over the global batch.
    """)
    return


@app.cell
def _():
    go_norms = page.button("norms", "Train with six local batches", "4 s")
    go_norms
    return (go_norms,)


@app.cell
def _(go_norms):
    normed = page.measured("norms", batch_norm.Norms, batch_norm.measure, go_norms)
    page.picture(
        partial(batch_norm.figure, normed),
        epochs=Slider("Epochs", list(range(1, normed.epochs + 1)), normed.epochs),
        rate=Slider("Learning rate", normed.rates, normed.rates[-1]),
    )
    return (normed,)


@app.cell
def _():
    mo.md("""
    **What to see.** Own statistics change with the number of replicas, and so does the result: the same recipe, other GPUs, another
    accuracy. The other two ways do not know how many replicas there are. Fixed shards cost no exchange and serve as many replicas as there are
    shards; synchronised statistics cost two small exchanges for each layer and serve any number.
    """)
    return


@app.cell
def _(grid, normed, raced, speed, warmed):
    asked = questions(speed, raced, grid, warmed, normed)
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

    - Compare runs by time to accuracy. Throughput says how long a step is, not how many are needed.
    - A batch that is *k* times as large wants a larger rate: by up to *k* while noise rules, by less near the critical batch, and nothing helps far
      past it.
    - Warm up from the rate of one replica: the full rate divided by the world size.
    - At very large batches give every layer its own step: LARS, LARC, LAMB, NovoGrad.
    - Statistics of batch norm must not depend on how many replicas there happen to be.
    """)
    return


if __name__ == "__main__":
    app.run()
