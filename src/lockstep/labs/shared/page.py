"""What all pages share: the head, measurements that are kept, tasks, the quiz.

A page runs in the browser or headless. Headless it measures everything, judges the answers of its
tasks, and stops for nobody.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import marimo as mo

from lockstep.errors import LockstepError, RunError
from lockstep.labs.shared.catalogue import lab
from lockstep.labs.shared.picture import Control, Figure, Picture
from lockstep.labs.shared.progress import Progress
from lockstep.labs.shared.quiz import Question, shuffled
from lockstep.labs.shared.task import Task

if TYPE_CHECKING:
    from lockstep.labs.shared.progress import Measured

Report = Callable[[float, str], None]
"""Says how far a measurement is: a share of 1, and what it does."""
Measure = Callable[[Report], "Measured"]


@dataclass(frozen=True)
class Event:
    """Something that a headless run did."""

    what: str
    seconds: float
    found: str


class Page:
    """One lab's page."""

    def __init__(self, number: int) -> None:
        self.lab = lab(number)
        self.headless = not mo.running_in_notebook()
        self.progress = Progress()
        self.events: list[Event] = []
        """What a headless run did."""

    def head(self) -> Any:
        """Title, question, what is done already."""
        done = self.progress.of(self.lab.number)
        marks = [
            f"{'✓' if done['tasks'].get(name, {}).get('passed') else '○'} task *{name}*"
            for name in self.lab.tasks
        ]
        quiz = done["quiz"]
        marks.append(f"✓ quiz {quiz['right']} of {quiz['of']}" if quiz else "○ quiz")
        return mo.md(
            f"# Lab {self.lab.number}: {self.lab.title}\n\n"
            f"**{self.lab.question}**\n\n{' &nbsp; '.join(marks)}"
        )

    def picture(
        self, draw: Callable[..., Figure], *, height: int = 380, **controls: Control
    ) -> Any:
        """A figure that changes as its controls move."""
        return mo.ui.anywidget(Picture(draw, height=height, **controls))

    def button(self, name: str, what: str, takes: str) -> Any:
        """The button that starts a measurement, which the next cell makes by `measured`."""
        again = " again" if self.progress.has(self.lab.number, name) else ""
        return mo.ui.run_button(label=f"{what}{again} ({takes})")

    def measured(
        self, name: str, kind: type[Measured], measure: Measure[Measured], button: Any
    ) -> Measured:
        """What was measured: now, if the button was pressed, otherwise on an earlier visit.

        Without either the cell stops, and those after it that need the numbers.
        """
        number = self.lab.number
        if not (self.headless or button.value):
            found = self.progress.kept(number, name, kind)
            mo.stop(found is None, mo.md("*Not measured on this machine yet: press the button.*"))
            assert found is not None
            return found
        began = time.perf_counter()
        result = measure(lambda share, what: None) if self.headless else _shown(measure)
        self._note(f"measured {name}", began, "")
        self.progress.keep(number, name, result)
        # As a later visit will see it: JSON knows no tuples.
        return kind(**json.loads(json.dumps(asdict(result))))

    def editor(self, task: Task) -> Any:
        """The text that the learner fills in, with a button that has it judged."""
        tried = self.progress.of(self.lab.number)["tasks"].get(task.name, {})
        code = mo.ui.code_editor(
            value=tried.get("text") or task.starter, language="python", min_height=120
        )
        return code.form(submit_button_label="Check", bordered=False)

    def judged(self, task: Task, editor: Any) -> Any:
        """What is wrong with the text, or that it passes, and then the short answer."""
        if self.headless:
            began = time.perf_counter()
            wrong = task.judge(task.answer)
            if wrong:
                raise RunError(f"the answer of task {task.name} does not pass: {' '.join(wrong)}")
            self._note(f"task {task.name}", began, "its answer passes")
            return mo.md(task.explains)
        if editor.value is None:
            return mo.md("")
        with mo.status.spinner(title="Checking", remove_on_exit=True):
            wrong = task.judge(editor.value)
        self.progress.attempt(self.lab.number, task.name, editor.value, not wrong)
        if wrong:
            return mo.callout(mo.md(_listed(wrong)), kind="warn")
        return mo.callout(mo.md(f"**Passed.** {task.explains}"), kind="success")

    def answer(self, task: Task) -> Any:
        """A text that passes, folded away."""
        shown = mo.md(f"```python\n{task.answer.strip()}\n```\n\n{task.explains}")
        return mo.accordion({"Show the answer": shown})

    def ask(self, questions: Sequence[Question]) -> Any:
        """The quiz."""
        arranged = shuffled(questions, len(questions[0].text))
        radios = {
            f"question{place}": mo.ui.radio(
                options={choice: at for at, choice in enumerate(question.choices)},
                label=f"**{place + 1}. {question.text}**",
            )
            for place, question in enumerate(arranged)
        }
        text = "\n\n".join(f"{{{place}}}" for place in radios)
        return mo.md(text).batch(**radios).form(submit_button_label="Answer", bordered=False)

    def marked(self, questions: Sequence[Question], answers: Any) -> Any:
        """How many are right, and why."""
        arranged = shuffled(questions, len(questions[0].text))
        if self.headless:
            self._note("quiz", time.perf_counter(), f"{len(arranged)} questions")
            return mo.md("")
        if answers.value is None:
            return mo.md("")
        given = [answers.value[f"question{place}"] for place in range(len(arranged))]
        right = sum(at == question.right for at, question in zip(given, arranged, strict=True))
        self.progress.quiz(self.lab.number, right, len(arranged))
        lines = []
        for place, (at, question) in enumerate(zip(given, arranged, strict=True)):
            verdict = "✓ Right" if at == question.right else f"✗ Right is: {question.answer}"
            lines.append(f"{place + 1}. {verdict}. {question.why}")
        text = mo.md(f"**{right} of {len(arranged)}**\n\n" + "\n".join(lines))
        return mo.callout(text, kind="success" if right == len(arranged) else "info")

    def _note(self, what: str, began: float, found: str) -> None:
        self.events.append(Event(what, time.perf_counter() - began, found))


def _shown(measure: Measure[Measured]) -> Measured:
    """Measure under a bar; what cannot be measured here stops the cell, and says why."""
    try:
        with mo.status.progress_bar(total=100, remove_on_exit=True) as bar:
            at = 0

            def report(share: float, what: str) -> None:
                nonlocal at
                now = max(at, min(100, round(100 * share)))
                bar.update(increment=now - at, subtitle=what)
                at = now

            return measure(report)
    except LockstepError as error:
        said = mo.md(f"**That failed.** Press the button to try again.\n\n```text\n{error}\n```")
        mo.stop(True, mo.callout(said, kind="danger"))
        raise


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    """A small table of texts, the numbers to the right."""
    marks = ["---", *["---:"] * (len(columns) - 1)]
    lines = [columns, marks, *rows]
    return mo.md("\n".join(f"| {' | '.join(line)} |" for line in lines))


def _listed(wrong: Sequence[str]) -> str:
    """Sentences as a list; what has lines of its own stays as it is."""
    lines = []
    for one in wrong:
        first, *rest = one.splitlines()
        lines.append(f"- {first}")
        if rest:
            lines.append("\n".join(["", "  ```text", *(f"  {line}" for line in rest), "  ```"]))
    return "\n".join(["**Not yet.**", "", *lines])
