"""Lab 2: distributed data parallel."""
# /// script
# [tool.marimo.display]
# theme = "system"
# ///

import marimo

app = marimo.App(width="medium", app_title="Lab 2: Distributed data parallel")

with app.setup:
    from functools import partial

    import marimo as mo

    from lockstep.labs.lab2_ddp import (
        bucket_pictures,
        buckets,
        converter_comparison,
        gradient_exchange,
        proof,
        validation,
    )
    from lockstep.labs.lab2_ddp.diff import diff, shown
    from lockstep.labs.lab2_ddp.quiz import questions
    from lockstep.labs.lab2_ddp.steps import steps
    from lockstep.labs.lab2_ddp.tasks import latest, passed_before, task
    from lockstep.labs.shared.page import Page, table
    from lockstep.labs.shared.picture import Slider

    page = Page(2)


@app.cell
def _():
    page.head()
    return


@app.cell
def _():
    mo.md(r"""
    ## What DDP does

    Every rank has a copy of the model and other samples. Each computes the gradient of its own samples; their mean is the
    gradient of all of them. `DistributedDataParallel` takes that mean in an **all-reduce**, and does so while the backward pass
    still runs: gradients come layer by layer, from the last to the first, and are sent in **buckets**.

    The button trains a perceptron (2.1 million parameters, 8.6 MB of gradients) on two processes, with buckets of several
    sizes, and records every backward pass: when each gradient was there, in which bucket it went, and when that was reduced.
    """)
    return


@app.cell
def _():
    record = page.button("buckets", "Record two processes", "7 s")
    record
    return (record,)


@app.cell
def _(record):
    recorded = page.measured("buckets", buckets.Recorded, buckets.measure, record)
    _caps = [buckets.named(cap) for cap in recorded.caps]
    page.picture(
        partial(bucket_pictures.timeline, recorded),
        height=360,
        cap=Slider("Bucket size", recorded.caps, recorded.caps[0], _caps),
        step=Slider("Step", range(len(recorded.runs[0])), 3),
    )
    return (recorded,)


@app.cell
def _(recorded):
    mo.md(f"""
    **What to see** (measured on: {recorded.device}). Press Play. A bucket and the layers whose gradients it carries have one
    colour. At step 0 there is one bucket for all, whatever the size: DDP does not know yet in which order the gradients will
    come, and waits for the last. From step 1 on the buckets follow that order. Small buckets leave early, and most of the exchange
    is hidden behind the rest of the backward pass; one large bucket leaves when there is nothing left to hide behind. Between two
    layers the rank copies gradients into a bucket, starts an exchange, or waits for a core that the exchange has. By default a bucket is full
    at 25 MiB, and the first already at 1 MiB, so that the exchange starts early. The optimizer's step waits for the end of all.
    """)
    return


@app.cell
def _(recorded):
    _caps = [buckets.named(cap) for cap in recorded.caps]
    page.picture(
        partial(bucket_pictures.order, recorded),
        height=340,
        cap=Slider("Bucket size", recorded.caps, 2.0, _caps),
        step=Slider("Step", range(len(recorded.runs[0])), 3),
    )
    return


@app.cell
def _(recorded):
    mo.vstack(
        [
            mo.md("""
    The model has its `head` written first, and its gradients come first all the same: what counts is the way that the
    backward pass takes. So what did the bucket size do to the time of a backward pass?
    """),
            page.picture(partial(bucket_pictures.by_cap, recorded), height=320),
        ]
    )
    return


@app.cell
def _(recorded):
    mo.vstack(
        [
            mo.md("""
    ### One gradient, in numbers

    The bias of the last layer in the first step: each rank's own gradient, their mean, and what was there after the
    all-reduce; below, the weights after the optimizer's step.
    """),
            table(gradient_exchange.GRADIENTS, gradient_exchange.gradients(recorded)),
            table(gradient_exchange.WEIGHTS, gradient_exchange.weights(recorded)),
            mo.md(gradient_exchange.verdict(recorded)),
        ]
    )
    return


@app.cell
def _():
    mo.md(f"""
    ## A program for one GPU becomes one for many

    Below is a plain PyTorch program that trains on one GPU: it prepares its data, trains, evaluates, prints, and saves.
    In {len(steps())} steps it becomes one that `torchrun` starts on any number of them. For each step change the program and press
    **Check**: it is run on two processes, with few samples, and the doctor watches what they do. You pass when what the step is about is gone,
    nothing else has come, and what you did before still holds. Here the CPU stands in for GPUs that are missing.
    """)
    return


@app.cell
def _():
    _tried = page.progress.of(2)["tasks"]
    _names = {
        f"{number}. {step.title}{' ✓' * bool(_tried.get(step.name, {}).get('passed'))}": step.name
        for number, step in enumerate(steps(), 1)
    }
    _open = [label for label in _names if not label.endswith("✓")] or list(_names)[-1:]
    chosen = mo.ui.dropdown(
        _names, value=list(_names)[-1] if page.headless else _open[0], label="Step"
    )
    chosen
    return (chosen,)


@app.cell
def _(chosen):
    step = next(one for one in steps() if one.name == chosen.value)
    current = task(step, passed_before(step, page.progress.of(2)["tasks"]))
    _tried = page.progress.of(2)["tasks"].get(step.name, {})
    program = mo.ui.code_editor(
        value=_tried.get("text") or current.starter,
        language="python",
        min_height=200,
        max_height=460,
    ).form(submit_button_label="Check", bordered=False)
    mo.vstack([mo.md(current.asks), program])
    return current, program, step


@app.cell
def _(current, program, step):
    _answer = mo.Html(shown(diff(step.before, step.after)))
    mo.vstack([page.judged(current, program), mo.accordion({"Show the answer": _answer})])
    return


@app.cell
def _():
    mo.md("""
    ### Why sums, not means

    The test set has 359 images, and two ranks cannot have equal parts of it. A network was trained for a moment, and each of its
    answers kept: so all ways to put an accuracy together can be compared.
    """)
    return


@app.cell
def _():
    judge = page.button("parts", "Judge 359 images", "1 s")
    judge
    return (judge,)


@app.cell
def _(judge):
    judged = page.measured("parts", validation.Judged, validation.measure, judge)
    page.picture(
        partial(validation.figure, judged),
        height=300,
        ranks=Slider("Ranks", range(2, 17), 2),
        batch=Slider("Test batch per rank", [8, 16, 32, 50, 64, 100], 100),
    )
    return (judged,)


@app.cell
def _():
    mo.md("""
    **What to see.** Only the sum of counts does not depend on how many ranks there are. A mean of means is close when the
    parts are nearly equal, and is wrong when they are not: move the batch, and a short last batch weighs as much as
    a full one. A sampler that repeats images counts some of them twice; `drop_last` forgets some, with many ranks
    nearly all.
    """)
    return


@app.cell
def _(program):
    _tried = page.progress.of(2)["tasks"]
    _passed = any(one.get("passed") for one in _tried.values())
    _own = program.value or latest(_tried)
    own = _own if (_passed or program.value) and not page.headless else steps()[-1].after
    _whose = (
        "Yours is what you last checked, or else what last passed."
        if own is _own
        else "You have not passed a step yet: our own last program stands in for yours."
    )
    mo.vstack(
        [
            mo.md(f"""
    ## Your program against the converter's

    `lockstep convert train.py` makes the same change by itself, from the program for one GPU. It keeps one text for one and
    for many processes, so it asks for `WORLD_SIZE` everywhere. {_whose}
    """),
            mo.accordion(
                {
                    "From yours to the converter's, line by line": mo.Html(
                        shown(converter_comparison.difference(own))
                    )
                }
            ),
        ]
    )
    return (own,)


@app.cell
def _():
    race = page.button("against", "Run them", "25 s")
    race
    return (race,)


@app.cell
def _(own, race):
    compared = page.measured(
        "against", converter_comparison.Runs, partial(converter_comparison.measure, own=own), race
    )
    mo.vstack(
        [
            table(converter_comparison.COLUMNS, converter_comparison.rows(compared)),
            mo.md("\n".join(f"- {one}" for one in converter_comparison.remarks(compared))),
        ]
    )
    return (compared,)


@app.cell
def _():
    mo.md("""
    Close is not the same. Two runs draw other orders and other dropout, and then even a correct program ends
    elsewhere. `lockstep convert --verify` makes these the same in both runs, by sample, and then compares every loss and every
    weight of some steps: the program for one GPU on one process, yours on two.
    """)
    return


@app.cell
def _():
    ask = page.button("proof", "Prove it", "15 s")
    ask
    return (ask,)


@app.cell
def _(ask, own):
    proved = page.measured("proof", proof.Proof, partial(proof.measure, own=own), ask)
    _words = [f"**{'Proven' if proved.proved else 'Not proven'}.** {proved.said}."]
    if proved.neutralised:
        _words.append(f"Made the same in both runs: {'; '.join(proved.neutralised)}.")
    if proved.log:
        _words.append(f"```text\n{proved.log}\n```")
    mo.callout(mo.md("\n\n".join(_words)), kind="success" if proved.proved else "warn")
    return


@app.cell
def _(compared, judged, recorded):
    asked = questions(recorded, judged, compared)
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

    - One process per GPU; `torchrun` starts them and says who is who. The program only reads it.
    - Equal weights, other samples, mean gradients: then the weights stay equal. Break one of the three, and you train several models.
    - The bytes of an all-reduce are those of the gradients. They do not grow with the batch, so larger batches hide them better.
    - Buckets let the exchange begin before the backward pass ends; the last bucket cannot be hidden.
    - Metrics are sums over ranks, divided once. One rank speaks and writes, and no collective stands in its `if`.
    """)
    return


if __name__ == "__main__":
    app.run()
