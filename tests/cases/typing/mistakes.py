"""A user's program with mistakes: a type checker must find an error in each marked line."""

from functools import partial

import lockstep
from lockstep.models import mlp
from lockstep.optimizers import Lars  # mistake
from lockstep.schedules import cosine

lockstep.nonsense  # mistake
lockstep.schedules.sine  # mistake
lockstep.Recipe(nam="x")  # mistake
lockstep.Recipe(
    name="x",
    model=mlp,
    data=mlp,  # mistake
    loss=lockstep.metrics.accurate,  # mistake
    metrics={"accuracy": lockstep.metrics.accuracy},
    optimizer=partial(lockstep.optimizers.LARS, momentum=0.9),
    learning_rate="0.1",  # mistake
    schedule=cosine(0.5),  # mistake
    precision="fp8",  # mistake
    global_batch=64,
    epochs=1,
)
run = lockstep.train("digits", replica=2)  # mistake
lockstep.train("digits", replicas="2")  # mistake
lockstep.train("digits", device="tpu")  # mistake
lockstep.train("digits", speed="fast")  # mistake
lockstep.train(lockstep.data.digits)  # mistake
accuracy: str = run.metrics["accuracy"]  # mistake
run.folder = "elsewhere"  # mistake
run.weight()  # mistake
lockstep.rules.linear_rule("8")  # mistake
lockstep.augment.flip(1)  # mistake
