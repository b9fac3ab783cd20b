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
        power_law,
        step_animation,
        step_parts,
    )
    from lockstep.labs.lab0_why.quiz import questions
    from lockstep.labs.lab0_why.tasks import NEEDED
    from lockstep.labs.shared.page import Page, table
    from lockstep.labs.shared.picture import Choice, Slider
    from lockstep.labs.shared.picture.controls import written

    page = Page(0)
    LINKS = [None, 0.1, 1.0, 10.0, 100.0, 400.0, 3600.0]


@app.cell
def _():
    page.head()
    return


@app.cell
def _():
    mo.md("""
    ## Compute grows, and so do models

    From AlexNet in 2012 to AlphaGo Zero in 2017 the compute of the largest trainings grew 300,000 times, a doubling every 3.4
    months. Machines grow too: the fastest computer of 2009 did 2 PF/s, one box of 8 H100 is sold with 32. The unit is a
    **PF/s-day**: 10¹⁵ operations per second for a day, 8.6 · 10¹⁹ in all. Each dot is a published number; point at it for
    its source. The dashed line goes through the years that you choose.
    """)
    return


@app.cell
def _():
    _years = list(range(growth.FIRST, growth.LAST + 1))
    page.picture(
        growth.figure,
        quantity=Choice("Show", growth.QUANTITIES, growth.COMPUTE),
        first=Slider("From", _years, 2012),
        last=Slider("To", _years, 2024),
    )
    return


@app.cell
def _():
    mo.md("""
    **What to see.** Trainings double in months, machines in a year or more. The gap is filled by *more machines for one
    training*, which is what the next labs are about. Shorten the years to 2012 to 2017: the growth of that time was faster
    than what followed. Who waits less tries more: ResNet-50 on ImageNet took 29 hours on 8 GPUs, one hour on 256 (Goyal and
    others, 2017), and later that year 15 minutes on 1,024 (Akiba and others).
    """)
    return


@app.cell
def _():
    mo.md("""
    ## A thousand PF/s-days

    GPT-3 took 3,640 of them. How long is one thousand on machines that you pick? **Utilisation** is the part of the
    machine's number that a training gets; 40 % is good for a large one. And which number is the machine's? The peak
    of dense products in bfloat16; what a large product really reached; or the brochure's largest, which is in 8 bits with every other
    weight zero.
    """)
    return


@app.cell
def _():
    _work = [1.0, 10.0, 100.0, 1000.0, 3640.0, 10_000.0, 100_000.0, 440_000.0]
    _counts = [1, 2, 4, 8, 16, 64, 256, 1024, 4096, 16_384]
    _used = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0]
    page.picture(
        machines.figure,
        height=430,
        pf_days=Slider("PF/s-days", _work, 1000.0, written(_work, "{:,.0f}".format)),
        count=Slider("Machines", _counts, 8, written(_counts, "{:,}".format)),
        utilisation=Slider("Utilisation", _used, 1.0, written(_used, "{:.0%}".format)),
        rate=Choice("Number", machines.RATES, machines.BROCHURE),
    )
    return


@app.cell
def _():
    mo.md("""
    **What to see.** By the brochure a box of 8 H100 does it in a month, and one server with two CPUs in a century. Now take
    the bf16 peak and 40 %: the month becomes ten. Add machines: the time falls, the price does not change, *if* the
    utilisation stays. Keeping it up on many GPUs is the whole art.
    """)
    return


@app.cell
def _():
    mo.md(r"""
    ## Errors fall as a power law

    Hestness and others (2017) trained on growing parts of many data sets, translation, language, images and speech, and found
    one law: $\text{error} = a\,m^{b} + c$ for $m$ samples, with $b$ between $-0.07$ and $-0.35$. Other models move $a$, hardly
    $b$; the size of the model that fits best grows with the data too, but more slowly than they do. Then what a target needs, in data
    and so in compute, can be *predicted* before it is bought. Can it? Measure a curve here: six small models at once on each size, each
    with samples and first weights of its own.
    """)
    return


@app.cell
def _():
    go_learn = page.button("learning", "Train on growing data", "10 s")
    go_learn
    return (go_learn,)


@app.cell
def _(go_learn):
    curve = page.measured("learning", learning_curve.Learning, learning_curve.measure, go_learn)
    _counts, _targets = power_law.counts(curve), power_law.targets(curve)
    page.picture(
        partial(power_law.figure, curve),
        height=420,
        points=Slider("Points that the fit may see", _counts, _counts[len(_counts) // 3]),
        target=Slider("Target error", _targets, _targets[len(_targets) // 3]),
    )
    return (curve,)


@app.cell
def _(curve):
    mo.md(f"""
    **What to see.** The blue points, {curve.model} on {curve.data}, lie on a law. The shaded band holds the laws that they allow.
    Take points away: the best law hardly changes within the points, but where it *ends* changes a lot, and it usually
    promises too much. Mahmood and others (2022) saw the same: fits of a tenth of the data under-estimate how much more is
    needed. So plan with the high end of the interval, and measure again when you have more.
    """)
    return


@app.cell
def _():
    needed = page.editor(NEEDED)
    mo.vstack([mo.md(NEEDED.asks), needed])
    return (needed,)


@app.cell
def _(needed):
    mo.vstack([page.judged(NEEDED, needed), page.answer(NEEDED)])
    return


@app.cell
def _():
    mo.md("""
    ## Two ways to use two GPUs

    **Data parallelism**: every process has the whole model and a part of the batch; *gradients* are exchanged. It makes
    training faster. **Model parallelism**: every process has a part of the model and sees the whole batch; *activations* are
    exchanged. It makes room for a larger model. Here the same perceptron is trained on one process and both ways on two;
    bytes are counted where they are handed over to be sent, memory tensor by tensor.
    """)
    return


@app.cell
def _():
    go_ways = page.button("ways", "Train both ways on two processes", "6 s")
    go_ways
    return (go_ways,)


@app.cell
def _(go_ways):
    both = page.measured("ways", parallelism.Ways, parallelism.measure, go_ways)
    mo.vstack(
        [
            table(
                bytes_sent.COLUMNS,
                bytes_sent.rows(both, parallelism.WIDTHS[-1], parallelism.BATCHES[0]),
            ),
            mo.md(
                f"*Five hidden layers of {parallelism.WIDTHS[-1]} neurons, batch {parallelism.BATCHES[0]}, {both.micro_batches} "
                f"micro-batches, on: {both.device}. Of two processes the larger number; the weights are compared with those of "
                "one process, relative to the largest.*"
            ),
        ]
    )
    return (both,)


@app.cell
def _(both):
    _micro = [1, 2, 4, 8, 16, 32]
    page.picture(
        partial(bytes_sent.figure, both),
        height=520,
        width=Slider("Width of the model", bytes_sent.WIDTHS, 512),
        batch=Slider("Batch", bytes_sent.BATCHES, 256),
        micro_batches=Slider("Micro-batches", _micro, 4),
    )
    return


@app.cell
def _():
    mo.md("""
    **What to see.** Gradients are as many as parameters, whatever the batch: a flat line. Activations at the cut are batch times
    width, however deep the model: a rising one. Widen the model: the lines cross at a larger batch. Below, the price of
    stages: one waits until the other has something for it. More micro-batches fill the gaps, with more and smaller
    messages. Both ways reached the weights of one process, up to rounding.
    """)
    return


@app.cell
def _():
    mo.md("""
    ## One step, in fifteen parts

    Read data, transport, pre-process, queue, transport to the device; activations of layer 1, layer 2, output, loss;
    backpropagate through layer 3, 2, 1; optimizer step, weight update, return control. The engine measures each of them, on one replica
    and on two. A bar is a part; the lane below each shows what runs *beside* the step: data workers that read ahead,
    and the all-reduce. Press Play.
    """)
    return


@app.cell
def _():
    go_step = page.button("step", "Measure a step on one and on two", "8 s")
    go_step
    return (go_step,)


@app.cell
def _(go_step):
    parts = page.measured("step", step_parts.Steps, step_parts.measure, go_step)
    page.picture(
        partial(step_animation.figure, parts),
        height=430,
        gpus=Slider("GPUs", step_parts.COUNTS, 2),
        link=Slider("Link, Gb/s", LINKS, None, ["as measured", *written(LINKS[1:], "{:g}".format)]),
    )
    return (parts,)


@app.cell
def _(parts):
    mo.vstack(
        [
            mo.md(f"""
    **What to see.** Who is done first waits, red, for the slowest and for the all-reduce; then all update together, with equal
    weights. Make the link thin: the all-reduce no longer hides behind backward. Each GPU computes {parts.local_batch} images,
    so that more GPUs do more in a step, not the same faster. What was not measured here is predicted from the parts of
    one replica, with a bucket of gradients for each third of the layers, and says so.{" CPU cores stand in for GPUs here, and they share one machine." if parts.device == "cpu" else ""}
    """),
            mo.accordion({"The fifteen parts in numbers": table(*step_animation.table(parts))}),
        ]
    )
    return


@app.cell
def _(both, curve, parts):
    asked = questions(curve, both, parts)
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

    - Trainings grow faster than machines. The difference is made up by using many at once.
    - More machines cost no more if the utilisation stays; it is what to watch.
    - Errors fall as a power law of the data, down to a floor. From a few points the law is easy to fit and its end is not known.
    - Data parallelism sends gradients and speeds training up; model parallelism sends activations and makes room.
    - A step waits for its slowest replica and for what of the all-reduce is not hidden.
    """)
    return


if __name__ == "__main__":
    app.run()
