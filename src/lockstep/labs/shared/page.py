"""The parts that all pages share: title, texts, measurements, tasks and the quiz.

A page runs in the browser or headless. A headless page measures everything, judges the answers
of its tasks, and waits for no input.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import marimo as mo

from lockstep.errors import LockstepError, RunError
from lockstep.labs.shared.apart import Report
from lockstep.labs.shared.catalogue import lab
from lockstep.labs.shared.picture import Control, Figure, Picture
from lockstep.labs.shared.progress import Progress
from lockstep.labs.shared.quiz import Question, shuffled
from lockstep.labs.shared.task import Task
from lockstep.labs.shared.text import filled, sections

if TYPE_CHECKING:
    from lockstep.labs.shared.progress import Measured

Measure = Callable[[Report], "Measured"]


@dataclass(frozen=True)
class Event:
    """One entry in the report of a headless run."""

    what: str
    seconds: float
    found: str


class Page:
    """The page of one lab."""

    def __init__(self, number: int) -> None:
        self.lab = lab(number)
        self.headless = not mo.running_in_notebook()
        self.progress = Progress()
        self.events: list[Event] = []
        """The report of a headless run."""
        self._quiz: list[Question] = []

    def head(self) -> Any:
        """Show the title, the question, and the learner's progress."""
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

    def text(self, name: str, **values: Any) -> Any:
        """Show a section of the lab's `text.md`, with its gaps filled."""
        return mo.md(filled(sections(Path(self.lab.folder, "text.md"))[name], values))

    def show(self, *parts: Any) -> Any:
        """Show several parts below each other."""
        return mo.vstack(parts)

    def picture(
        self,
        draw: Callable[..., Figure],
        below: Any = None,
        *,
        height: int = 380,
        **controls: Control,
    ) -> Any:
        """Show a figure that changes as its controls move, and what to see in it `below`."""
        picture = mo.ui.anywidget(Picture(draw, height=height, **controls))
        return picture if below is None else self.show(picture, below)

    def button(self, name: str, what: str, takes: str) -> Any:
        """Show the button that starts a measurement; the next cell calls `measured`."""
        again = " again" if self.progress.has(self.lab.number, name) else ""
        return mo.ui.run_button(label=f"{what}{again} ({takes})")

    def measured(
        self, name: str, kind: type[Measured], measure: Measure[Measured], button: Any
    ) -> Measured:
        """Measure now if the button was pressed, otherwise return the result of an earlier visit.

        Without either, stop this cell and the later cells that need the numbers.
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
        # Convert the result as a later visit will: JSON has no tuples.
        return kind(**json.loads(json.dumps(asdict(result))))

    def editor(self, task: Task) -> Any:
        """Show the code that the learner completes, with a button that checks it."""
        tried = self.progress.of(self.lab.number)["tasks"].get(task.name, {})
        code = mo.ui.code_editor(
            value=tried.get("text") or task.starter, language="python", min_height=120
        )
        return code.form(submit_button_label="Check", bordered=False)

    def judged(self, task: Task, editor: Any, answer: Any = None) -> Any:
        """Show the verdict on the learner's code, and a folded answer (default: the task's)."""
        if answer is None:
            answer = mo.md(f"```python\n{task.answer.strip()}\n```\n\n{task.explains}")
        return self.show(self._verdict(task, editor), mo.accordion({"Show the answer": answer}))

    def _verdict(self, task: Task, editor: Any) -> Any:
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

    def ask(self, questions: Sequence[Question]) -> Any:
        """Show the quiz."""
        self._quiz = shuffled(questions, len(questions[0].text))
        radios = {
            f"question{place}": mo.ui.radio(
                options={choice: at for at, choice in enumerate(question.choices)},
                label=f"**{place + 1}. {question.text}**",
            )
            for place, question in enumerate(self._quiz)
        }
        text = "\n\n".join(["## Quiz", *(f"{{{place}}}" for place in radios)])
        return mo.md(text).batch(**radios).form(submit_button_label="Answer", bordered=False)

    def marked(self, answers: Any) -> Any:
        """Show how many answers of the quiz are right, and why."""
        if self.headless:
            self._note("quiz", time.perf_counter(), f"{len(self._quiz)} questions")
        if self.headless or answers.value is None:
            return mo.md("")
        given = [answers.value[f"question{place}"] for place in range(len(self._quiz))]
        right, lines = 0, []
        for place, (at, question) in enumerate(zip(given, self._quiz, strict=True), 1):
            right += at == question.right
            verdict = "✓ Right" if at == question.right else f"✗ Right is: {question.answer}"
            lines.append(f"{place}. {verdict}. {question.why}")
        self.progress.quiz(self.lab.number, right, len(self._quiz))
        text = mo.md(f"**{right} of {len(self._quiz)}**\n\n" + "\n".join(lines))
        return mo.callout(text, kind="success" if right == len(self._quiz) else "info")

    def _note(self, what: str, began: float, found: str) -> None:
        self.events.append(Event(what, time.perf_counter() - began, found))


def _shown(measure: Measure[Measured]) -> Measured:
    """Measure under a progress bar; stop the cell with the reason if the measurement fails."""
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
    """Show a small table; all columns but the first are aligned to the right."""
    marks = ["---", *["---:"] * (len(columns) - 1)]
    lines = [columns, marks, *rows]
    return mo.md("\n".join(f"| {' | '.join(line)} |" for line in lines))


def _listed(wrong: Sequence[str]) -> str:
    """Format messages as a list; further lines of a message become a code block."""
    lines = []
    for one in wrong:
        first, *rest = one.splitlines()
        lines.append(f"- {first}")
        if rest:
            lines.append("\n".join(["", "  ```text", *(f"  {line}" for line in rest), "  ```"]))
    return "\n".join(["**Not yet.**", "", *lines])
