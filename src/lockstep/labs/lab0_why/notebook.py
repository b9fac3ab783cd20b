"""Lab 0: why many GPUs."""
# /// script
# [tool.marimo.display]
# theme = "system"
# ///

import marimo

app = marimo.App(width="medium", app_title="Lab 0: Why many GPUs")

with app.setup:
    from functools import partial

    import marimo as mo

    from lockstep.labs.lab0_why import (
        bytes_sent,
        growth,
        learning_curve,
        machines,
        parallelism,
        step_animation,
        step_parts,
    )
    from lockstep.labs.lab0_why.quiz import questions
    from lockstep.labs.lab0_why.tasks import NEEDED
    from lockstep.labs.shared.page import Page, table
    from lockstep.labs.shared.picture import Choice, Slider

    page = Page(0)


@app.cell
def _():
    page.show(page.head(), page.text("growth"))


@app.cell
def _():
    _years = list(range(growth.FIRST, growth.LAST + 1))
    page.picture(
        growth.figure,
        page.text("growth seen"),
        quantity=Choice("Show", growth.QUANTITIES, growth.COMPUTE),
        first=Slider("From", _years, 2012),
        last=Slider("To", _years, 2024),
    )


@app.cell
def _():
    _work = [1.0, 10.0, 100.0, 1000.0, 3640.0, 10_000.0, 100_000.0, 440_000.0]
    _counts = [1, 2, 4, 8, 16, 64, 256, 1024, 4096, 16_384]
    _used = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0]
    _picture = page.picture(
        machines.figure,
        page.text("machines seen"),
        height=430,
        pf_days=Slider("PF/s-days", _work, 1000.0, [f"{work:,.0f}" for work in _work]),
        count=Slider("Machines", _counts, 8, [f"{count:,}" for count in _counts]),
        utilisation=Slider("Utilisation", _used, 1.0, [f"{used:.0%}" for used in _used]),
        rate=Choice("Number", machines.RATES, machines.BROCHURE),
    )
    page.show(page.text("machines"), _picture)


@app.cell
def _():
    go_learn = page.button("learning", "Train on growing data", "10 s")
    page.show(page.text("power law"), go_learn)
    return (go_learn,)


@app.cell
def _(go_learn):
    curve = page.measured("learning", learning_curve.Learning, learning_curve.measure, go_learn)
    _counts, _targets = learning_curve.counts(curve), learning_curve.targets(curve)
    page.picture(
        partial(learning_curve.figure, curve),
        page.text("power law seen", model=curve.model, data=curve.data),
        height=420,
        points=Slider("Points that the fit may see", _counts, _counts[len(_counts) // 3]),
        target=Slider("Target error", _targets, _targets[len(_targets) // 3]),
    )
    return (curve,)


@app.cell
def _():
    needed = page.editor(NEEDED)
    page.show(mo.md(NEEDED.asks), needed)
    return (needed,)


@app.cell
def _(needed):
    page.judged(NEEDED, needed)


@app.cell
def _():
    go_ways = page.button("ways", "Train both ways on two processes", "6 s")
    page.show(page.text("parallelism"), go_ways)
    return (go_ways,)


@app.cell
def _(go_ways):
    both = page.measured("ways", parallelism.Ways, parallelism.measure, go_ways)
    _width, _batch = parallelism.WIDTHS[-1], parallelism.BATCHES[0]
    _facts = {"micro_batches": both.micro_batches, "device": both.device}
    page.show(
        table(bytes_sent.COLUMNS, bytes_sent.rows(both, _width, _batch)),
        page.text("parallelism table", width=_width, batch=_batch, **_facts),
        page.picture(
            partial(bytes_sent.figure, both),
            height=520,
            width=Slider("Width of the model", bytes_sent.WIDTHS, 512),
            batch=Slider("Batch", bytes_sent.BATCHES, 256),
            micro_batches=Slider("Micro-batches", [1, 2, 4, 8, 16, 32], 4),
        ),
    )
    return (both,)


@app.cell
def _():
    page.text("parallelism seen")


@app.cell
def _():
    go_step = page.button("step", "Measure a step on one and on two", "8 s")
    page.show(page.text("step"), go_step)
    return (go_step,)


@app.cell
def _(go_step):
    parts = page.measured("step", step_parts.Steps, step_parts.measure, go_step)
    _links = [None, 0.1, 1.0, 10.0, 100.0, 400.0, 3600.0]
    _names = ["as measured", *(f"{link:g}" for link in _links[1:])]
    _on_cpu = " Here CPU cores stand in for GPUs, and they share one machine."
    _on_cpu = _on_cpu if parts.device == "cpu" else ""
    page.show(
        page.picture(
            partial(step_animation.figure, parts),
            height=430,
            gpus=Slider("GPUs", step_parts.COUNTS, 2),
            link=Slider("Link, Gb/s", _links, None, _names),
        ),
        page.text("step seen", local_batch=parts.local_batch, on_cpu=_on_cpu),
        mo.accordion({"The fifteen parts in numbers": table(*step_animation.table(parts))}),
    )
    return (parts,)


@app.cell
def _(both, curve, parts):
    answers = page.ask(questions(curve, both, parts))
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
