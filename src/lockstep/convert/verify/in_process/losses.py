"""Note the losses: the values that backward is called on."""

from __future__ import annotations

from lockstep.convert.verify.in_process.training_state import Now


def install(now: Now) -> None:
    """Note the loss of every backward."""

    def backward() -> None:
        value = sum(float(loss.detach().double().sum()) for loss in now.recorder.losses)
        now.recorder.note("loss", value=value, step=now.most_steps, number=now.backwards)
        now.backwards += 1
        now.evaluated = False

    now.recorder.on_backward.append(backward)
