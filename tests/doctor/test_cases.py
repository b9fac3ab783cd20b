"""Every rule finds its bug where the case marks it, and is quiet on the repaired script."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lockstep.doctor import RULES, check
from lockstep.doctor.findings import Rule
from lockstep.doctor.registry import watchers
from lockstep.source.edits import applied

ROOT = Path(__file__).parent.parent.parent
CASES = ROOT / "tests" / "cases" / "doctor"
EVERY = sorted([*CASES.rglob("*.py"), *CASES.rglob("*.ipynb")])
MARK = re.compile(r"#\s*(LS\d\d(?:[, ]+LS\d\d)*)")
SURE = re.compile(r"#\s*LS\d\d (certain|possible)")
WHERE = {"source": lambda rule: rule.look, "run": lambda rule: rule.name in watchers()}
SECTIONS = ["What it does", "Why it is bad", "Example", "Use instead", "When to ignore"]


def entries(kind: str) -> list[Path]:
    """Return the scripts to check; a folder of several files has a main.py."""
    names = (p for p in EVERY if kind in p.relative_to(CASES).parts[1].split("_")[0])
    return [p for p in names if p.parent.parent == CASES or p.stem == "main"]


def name_of(path: Path) -> str:
    return str(path.relative_to(CASES))


def rules_for(path: Path) -> list[Rule]:
    """Return the rules that read a case: all that nobody has to ask for, and its own."""
    own = path.relative_to(CASES).parts[0]
    return [rule for rule in RULES if not rule.on_request or rule.name == own]


def expected(path: Path) -> set[tuple[str, int, str]]:
    """Return (file, line, code) of every mark in the file, or in all files of its folder."""
    found = set()
    for place in [path] if path.parent.parent == CASES else sorted(path.parent.rglob("*.py")):
        for number, line in enumerate(place.read_text().splitlines(), 1):
            mark = MARK.search(line)
            for code in re.findall(r"LS\d\d", mark[1]) if mark else ():
                found.add((place.name, number, code))
    return found


@pytest.mark.parametrize("path", entries("bad"), ids=name_of)
def test_a_bad_case_is_found_where_it_is_and_nowhere_else(path: Path):
    findings = check([path], rules_for(path)).findings
    assert {(f.path.name, f.line, f.rule.code) for f in findings} == expected(path)
    rule = path.relative_to(CASES).parts[0]
    assert rule in {finding.rule.name for finding in findings}


@pytest.mark.parametrize("path", entries("bad"), ids=name_of)
def test_a_finding_is_as_certain_as_its_mark_says(path: Path):
    for finding in check([path], rules_for(path)).findings:
        mark = SURE.search(finding.path.read_text().splitlines()[finding.line - 1])
        assert mark is None or finding.certain is (mark[1] == "certain"), finding.where


@pytest.mark.parametrize("path", entries("good"), ids=name_of)
def test_a_good_case_is_left_alone(path: Path):
    checked = check([path], rules_for(path))
    assert [f"{f.where} {f.rule.name}: {f.message}" for f in checked.findings] == []
    assert checked.distributed


@pytest.mark.parametrize("path", entries("bad"), ids=name_of)
def test_a_fix_removes_its_finding(path: Path, tmp_path: Path):
    checked = check([path], rules_for(path))
    fixes = [f.fix for f in checked.findings if f.fix is not None and f.path == path]
    if not fixes:
        return
    repaired = tmp_path / path.name
    repaired.write_text(applied(path.read_text(), [e for fix in fixes for e in fix.edits]))
    compile(repaired.read_text(), str(repaired), "exec")
    left = {f.rule.code for f in check([repaired]).findings}
    assert not left & {f.rule.code for f in checked.findings if f.fix in fixes}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_has_cases_and_a_page(rule):
    if rule.look is not None:
        folder = CASES / rule.name
        assert [p for p in folder.iterdir() if p.name.startswith("bad")]
        assert [p for p in folder.iterdir() if p.name.startswith("good")]
    page = (ROOT / "docs" / "rules" / f"{rule.name}.md").read_text()
    assert page.startswith(f"# {rule.name} ({rule.code})\n")
    assert re.findall(r"^## (.*)$", page, re.M) == SECTIONS
    seen = [name for name, found in WHERE.items() if found(rule)]
    link = f"[{rule.name}]({rule.name}.md)"
    row = f"| {link} | {rule.code} | {' + '.join(seen)} | {rule.summary[:-1]} |"
    assert row in (ROOT / "docs" / "rules" / "README.md").read_text().splitlines()


def test_codes_and_names_are_unique():
    assert len({rule.code for rule in RULES}) == len({rule.name for rule in RULES}) == len(RULES)
    assert list(RULES) == sorted(RULES, key=lambda rule: rule.code)


def test_every_file_of_a_rule_has_its_row_in_the_table():
    folder = ROOT / "src" / "lockstep" / "doctor"
    files = {p.stem for p in (*folder.glob("rules/*.py"), *folder.glob("watchers/*.py"))}
    assert files - {"__init__"} == {rule.name for rule in RULES}
