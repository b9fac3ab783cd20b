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
    record = page.button("buckets", "Record two processes", "7 s")
    page.show(page.head(), page.text("ddp"), record)
    return (record,)


@app.cell
def _(record):
    recorded = page.measured("buckets", buckets.Recorded, buckets.measure, record)
    _caps = [buckets.named(cap) for cap in recorded.caps]
    _step = Slider("Step", range(len(recorded.runs[0])), 3)
    page.show(
        page.picture(
            partial(bucket_pictures.timeline, recorded),
            page.text("ddp seen", device=recorded.device),
            height=360,
            cap=Slider("Bucket size", recorded.caps, recorded.caps[0], _caps),
            step=_step,
        ),
        page.picture(
            partial(bucket_pictures.order, recorded),
            height=340,
            cap=Slider("Bucket size", recorded.caps, 2.0, _caps),
            step=_step,
        ),
        page.text("bucket size"),
        page.picture(partial(bucket_pictures.by_cap, recorded), height=320),
        page.text("one gradient"),
        table(bucket_pictures.GRADIENTS, bucket_pictures.gradients(recorded)),
        table(bucket_pictures.WEIGHTS, bucket_pictures.weights(recorded)),
        mo.md(bucket_pictures.verdict(recorded)),
    )
    return (recorded,)


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
    page.show(page.text("program", steps=len(steps())), chosen)
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
    page.show(mo.md(current.asks), program)
    return current, program, step


@app.cell
def _(current, program, step):
    _answer = mo.Html(shown(diff(step.before, step.after)))
    page.judged(current, program, answer=_answer)


@app.cell
def _():
    judge = page.button("parts", "Judge 359 images", "1 s")
    page.show(page.text("sums"), judge)
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
    page.text("sums seen")


@app.cell
def _(program):
    _tried = page.progress.of(2)["tasks"]
    _passed = any(one.get("passed") for one in _tried.values())
    _own = program.value or latest(_tried)
    own = _own if (_passed or program.value) and not page.headless else steps()[-1].after
    _whose = (
        "Yours is the program that you checked last, or else the one that passed last."
        if own is _own
        else "You have not passed a step yet, so our final program stands in for yours."
    )
    _lines = mo.Html(shown(diff(own, converter_comparison.converted())))
    _module = mo.md(f"```python\n{converter_comparison.helpers()}```")
    race = page.button("against", "Run them", "25 s")
    page.show(
        page.text("converter", whose=_whose),
        mo.accordion(
            {
                "From yours to the converter's, line by line": _lines,
                "The module that the converter's program imports": _module,
            }
        ),
        race,
    )
    return own, race


@app.cell
def _(own, race):
    compared = page.measured(
        "against", converter_comparison.Runs, partial(converter_comparison.measure, own=own), race
    )
    page.show(
        table(converter_comparison.COLUMNS, converter_comparison.rows(compared)),
        mo.md("\n".join(f"- {one}" for one in converter_comparison.remarks(compared))),
    )
    return (compared,)


@app.cell
def _():
    ask = page.button("proof", "Prove it", "15 s")
    page.show(page.text("proof"), ask)
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


@app.cell
def _(compared, judged, recorded):
    answers = page.ask(questions(recorded, judged, compared))
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
