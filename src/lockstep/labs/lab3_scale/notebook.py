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
        batch_norm,
        momentum,
        noise_scale,
        optimizers,
        rate_grid,
        runs,
        throughput,
        warmup,
    )
    from lockstep.labs.lab3_scale.quiz import questions
    from lockstep.labs.lab3_scale.tasks import RATE_AT
    from lockstep.labs.shared.drawing import including, three
    from lockstep.labs.shared.page import Page, table
    from lockstep.labs.shared.picture import Choice, Slider, Switch, steps

    page = Page(3)


@app.cell
def _():
    go_speed = page.button("throughput", "Measure one replica and several", "10 s")
    page.show(page.head(), page.text("speedup"), go_speed)
    return (go_speed,)


@app.cell
def _(go_speed):
    speed = page.measured("throughput", throughput.Throughput, throughput.measure, go_speed)
    _serial = three(
        throughput.serial_share(speed.replicas[-1], median(speed.ratio(speed.shared)[-1]))
    )
    _bytes = three(speed.gradient_bytes / 1e6)
    _shares = including([0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0], _serial)
    _shown = [f"{share:.1%}" for share in _shares]
    _links = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 12.0, 50.0, 200.0, 450.0]
    page.show(
        table(throughput.COLUMNS, throughput.rows(speed)),
        page.picture(
            partial(throughput.figure, speed),
            page.text("speedup seen", model=speed.model, device=speed.device),
            height=430,
            serial=Slider("Share that does not shrink", _shares, _serial, _shown),
            megabytes=Slider("Gradients, MB", including(steps(0.1, 10_000, 16), _bytes), _bytes),
            speed=Slider("Link, GB/s", _links, 1.0),
        ),
    )
    return (speed,)


@app.cell
def _():
    go_runs = page.button("runs", "Train six runs", "20 s")
    page.show(page.text("runs"), go_runs)
    return (go_runs,)


@app.cell
def _(go_runs):
    raced = page.measured("runs", runs.Runs, runs.measure, go_runs)
    _names = {f"run{n}": Switch(run.name, on=True) for n, run in enumerate(raced.each())}
    _same = "the same bits" if raced.identical else "not the same bits, which is an error of ours"
    _facts = {"difference": f"{raced.difference:.2g}", "replicas": raced.replicas, "same": _same}
    page.picture(
        partial(runs.figure, raced),
        page.text("runs seen", **_facts),
        height=430,
        axis=Choice("Against", ["seconds", "epochs", "steps"], "seconds"),
        target=Slider("Target accuracy", [0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97], 0.9),
        **_names,
    )
    return (raced,)


@app.cell
def _():
    go_momentum = page.button("momentum", "Train 210 models at once", "3 s")
    page.show(page.text("momentum"), go_momentum)
    return (go_momentum,)


@app.cell
def _(go_momentum):
    momenta = page.measured("momentum", momentum.Momenta, momentum.measure, go_momentum)
    _plain, _best = (f"{momenta.best_rate(share):g}" for share in (0.0, 0.9))
    _momentum = Slider("Momentum", momenta.momenta, 0.9)
    page.show(
        page.picture(
            partial(momentum.figure, momenta),
            momentum=_momentum,
            rate=Slider("Learning rate", momenta.rates, momenta.rates[3]),
        ),
        page.picture(
            partial(momentum.ends, momenta),
            page.text("momentum seen", plain_rate=_plain, momentum_rate=_best),
            height=340,
            momentum=_momentum,
            along=Switch("Against rate / (1 - momentum)"),
        ),
    )


@app.cell
def _():
    go_grid = page.button("explore", "Train 420 models", "10 s")
    page.show(page.text("rate grid"), go_grid)
    return (go_grid,)


@app.cell
def _(go_grid):
    grid = page.measured("explore", rate_grid.Explored, rate_grid.measure, go_grid)
    _budgets = [f"{n} {kind}" for kind, n in rate_grid.BUDGETS]
    page.picture(
        partial(rate_grid.figure, grid),
        height=460,
        budget=Slider("Budget", rate_grid.BUDGETS, ("epochs", 3), _budgets),
        momentum=Slider("Momentum", grid.momenta, grid.momenta[-1]),
        batch=Slider("Rules start at batch", grid.batches, grid.batches[0]),
        rate=Slider("and rate", grid.rates, grid.rates[1]),
    )
    return (grid,)


@app.cell
def _():
    page.text("rate grid seen", lost=rate_grid.LOST)


@app.cell
def _():
    go_warmup = page.button("warmup", "Train 420 models near the edge", "8 s")
    page.show(page.text("warmup"), go_warmup)
    return (go_warmup,)


@app.cell
def _(go_warmup):
    warmed = page.measured("warmup", warmup.Warmups, warmup.measure, go_warmup)
    _edge = warmup.found(warmed)
    _sliders = {
        "replicas": Slider("Replicas", warmed.replicas, _edge.replicas),
        "rate": Slider("Learning rate", warmed.rates, _edge.rate),
    }
    page.show(
        page.picture(
            partial(warmup.figure, warmed),
            height=460,
            **_sliders,
            warmup=Slider("Warmup, epochs", warmed.warmups, _edge.warmup),
            per_node=Slider("GPUs of a node", [1, 2, 4, 8], 2),
        ),
        page.picture(partial(warmup.ends, warmed), height=340, **_sliders),
        page.text(
            "warmup seen",
            replicas=_edge.replicas,
            rate=f"{_edge.rate:g}",
            without=f"{_edge.without:.0%}",
            rescued=f"{_edge.rescued:.0%}",
            warmup=_edge.warmup,
        ),
    )
    return (warmed,)


@app.cell
def _():
    rate_at = page.editor(RATE_AT)
    page.show(mo.md(RATE_AT.asks), rate_at)
    return (rate_at,)


@app.cell
def _(rate_at):
    page.judged(RATE_AT, rate_at)


@app.cell
def _():
    go_layers = page.button("optimizers", "Train five optimizers at twelve rates", "8 s")
    _rows = [[name, f"${formula}$"] for name, formula in optimizers.FORMULAS.items()]
    page.show(
        page.text("optimizers"),
        table(["optimizer", "factor of the layer's gradient"], _rows),
        page.text("optimizers network"),
        go_layers,
    )
    return (go_layers,)


@app.cell
def _(go_layers):
    found = page.measured("optimizers", optimizers.Optimizers, optimizers.measure, go_layers)
    _rule = found.rates[found.by_rule()]
    _rate = Slider("Learning rate", found.rates, _rule)
    _whats = ["how far a step moves it", "|w| / |g|"]
    page.show(
        page.picture(
            partial(optimizers.figure, found),
            rate=_rate,
            own=Switch("Each at its own best rate"),
        ),
        page.picture(partial(optimizers.ends, found), height=340, rate=_rate),
        page.picture(
            partial(optimizers.layers, found),
            height=340,
            what=Choice("Of each layer", ["step", "ratio"], "step", _whats),
            step=Slider("Step", list(range(1, found.steps[-1] + 1)), 6),
        ),
        table(*optimizers.table(found)),
        page.text("optimizers seen", rule=f"{_rule:g}"),
    )


@app.cell
def _():
    go_noise = page.button("noise", "Watch the noise of one training", "1 s")
    page.show(page.text("noise scale"), go_noise)
    return (go_noise,)


@app.cell
def _(go_noise, grid):
    noises = page.measured(
        "noise", noise_scale.Noises, lambda report: noise_scale.measure(report, grid), go_noise
    )
    _targets = noise_scale.TARGETS
    _fits = [(target, noise_scale.swept(grid, target)) for target in (_targets[0], _targets[-1])]
    _found = ", ".join(
        f"{fit[0].critical_batch:.0f} for a loss of {target:g}" for target, fit in _fits if fit
    )
    page.show(
        page.picture(partial(noise_scale.along, noises), height=320),
        page.picture(
            partial(noise_scale.figure, grid, noises),
            page.text("noise scale seen", batch=noises.batch, found=_found),
            height=480,
            target=Slider("Test loss to reach", _targets, _targets[-2]),
            batch=Slider("Batch size", [8, 16, 32, 64, 128, 256, 512, 1024], 128),
        ),
    )


@app.cell
def _():
    go_norms = page.button("norms", "Train with six local batches", "4 s")
    page.show(page.text("batch norm"), go_norms)
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
    page.text("batch norm seen")


@app.cell
def _(grid, normed, raced, speed, warmed):
    answers = page.ask(questions(speed, raced, grid, warmed, normed))
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
