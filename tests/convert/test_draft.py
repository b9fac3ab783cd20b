"""Write the new text of a file, and follow places in it back to the old one."""

from __future__ import annotations

from pathlib import Path

import libcst as cst
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.convert.draft import Draft
from lockstep.errors import ConvertError
from lockstep.source.reading import parse


def test_several_texts_at_one_place_keep_their_order() -> None:
    script = parse(Path("x.py"), 'a = 1\nb = """\n  text\n"""\nc = 3\n')
    draft = Draft(script)
    first, second, last = script.tree.body
    draft.after(first, "one")
    draft.before(second, "two")
    draft.under("if x:", [second])
    draft.after(last, "end")
    assert draft.text() == 'a = 1\none\ntwo\nif x:\n    b = """\n  text\n"""\nc = 3\nend\n'


def test_changes_that_overlap_are_refused_with_their_line() -> None:
    script = parse(Path("x.py"), "a = 1\nb = f(g(x))\n")
    draft = Draft(script)
    outer, inner = sorted(script.calls, key=lambda call: len(script.code(call)), reverse=True)
    draft.replace(outer, "h(x)")
    draft.replace(inner, "k(x)")
    with pytest.raises(ConvertError, match="line 2: two changes meet"):
        draft.text()


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_calls_are_followed_back_to_the_old_text(newline: str) -> None:
    lines = ["x = 'ä'; y = f(x)", "for i in range(3):", "    z = g(h(x), 'é').item()", ""]
    script = parse(Path("x.py"), newline.join(lines))
    draft = Draft(script)
    for call in script.calls:
        if script.code(call.func) in ("f", "h"):
            draft.around(call, "all_mean(")
    draft.before(script.tree.body[0], "import parallel\nfrom parallel import all_mean")
    new = parse(Path("y.py"), draft.text())
    for call in new.calls:
        name = new.code(call.func)
        end = new.place(call).end
        column = len(new.lines[end.line - 1][: end.column].encode())
        old = draft.origin(end.line, column)
        assert (old is None) == (name == "all_mean")
        if old is not None:
            text = script.lines[old[0] - 1].encode()[: old[1]].decode()
            assert text.endswith(new.code(call).replace("all_mean(h(x))", "h(x)"))


@given(st.lists(st.sampled_from(["pass", "a = 1", "f(1)\n    g(2)"]), min_size=1, max_size=6))
def test_a_text_without_changes_stays_as_it_is(parts: list[str]) -> None:
    text = "".join(f"if x:\n    {part}\n" for part in parts)
    assert Draft(parse(Path("x.py"), text)).text() == text


def test_what_is_put_at_the_end_of_a_file_without_a_newline_gets_its_own_line() -> None:
    script = parse(Path("x.py"), "a = 1")
    draft = Draft(script)
    assert isinstance(script.tree, cst.Module)
    draft.after(script.tree.body[-1], "b = 2")
    assert draft.text() == "a = 1\nb = 2\n"
