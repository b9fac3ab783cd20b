import re
import subprocess
import sys
from copy import deepcopy
from html import escape, unescape

import pytest

from lockstep.report.doctor import write_doctor

FINDING = {
    "rule": "missing_set_epoch",
    "code": "LS01",
    "path": "train.py",
    "line": 20,
    "column": 1,
    "end_line": 20,
    "end_column": 1,
    "severity": "error",
    "message": "passes 1 and 2 took the same order",
    "advice": "Call sampler.set_epoch(epoch).",
    "seen": "running",
    "fix": None,
}
POSSIBLE = FINDING | {
    "rule": "wrapped_state_dict",
    "code": "LS27",
    "severity": "warning",
    "message": "possible: every key begins with module.",
    "seen": "source",
    "fix": {"title": "save model.module", "safe": False},
}
PASS = {
    "loader": "data.py:12",
    "pass": 1,
    "epoch": 7,
    "trains": True,
    "complete": True,
    "data_set": 101,
    "samples": [51, 50],
    "distinct": 99,
    "shared": 3,
    "twice": 4,
    "missing": 2,
    "order": "same",
}
AGREES = {
    "verdict": "agrees",
    "by_rank": ["batch norm", "dropout"],
    "tolerance": 0.00035,
    "worst": 1.9e-7,
    "first": None,
    "difference": None,
    "ratio": 1.0,
    "cosine": 1.0,
}
RUN = {
    "ended": "finished",
    "seconds": 7.75,
    "ranks": 2,
    "backend": "gloo",
    "fake_cuda": [],
    "steps": 18,
    "global_batch": 18,
    "per_rank": [9.0, 9.0],
    "batches_per_step": 1,
    "reductions_per_step": 1,
    "rates": [[[0.1], [0.025]], [[0.1], [0.025]]],
    "passes": [PASS],
    "waiting": 0.0584,
    "drift": {"looked": 6, "parameters_differ_after_step": None, "buffers_differ": False},
    "oracle": AGREES,
    "files": [{"path": "model.pt", "ranks": [0, 1]}],
    "stuck": [],
    "last_words": [],
    "not_seen": ["a second epoch", "a resume"],
}
NOT_BEGUN = {
    "ended": "crashed",
    "seconds": 1.3,
    "ranks": 1,
    "backend": None,
    "fake_cuda": [],
    "steps": 0,
    "passes": [],
    "waiting": 0.0,
    "drift": {"looked": 0, "parameters_differ_after_step": None, "buffers_differ": False},
    "oracle": None,
    "files": [],
    "stuck": [],
    "last_words": ["usage: train.py", "train.py: error: --data is required"],
    "not_seen": ["training from a DataLoader", "a resume"],
}
WAITS = {
    "rank": 0,
    "doing": "all_reduce at train.py:26",
    "last_collective": "all_reduce at train.py:26",
    "stack": ["/lib/torch/distributed.py:3252 in all_reduce", "train.py:26 in main"],
}


def document(*findings, **run):
    return {
        "files": 1,
        "distributed": 1,
        "frameworks": [],
        "findings": list(findings),
        "errors": [],
        "run": deepcopy(RUN) | run,
    }


@pytest.fixture
def html(tmp_path):
    def write(content, name="train.py"):
        return write_doctor(tmp_path / "report.html", content, name).read_text()

    return write


def text(html):
    """What a person reads, without the style."""
    body = html.partition("</style>")[2]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def banner(html):
    found = re.search(r'class="banner" style="--tone: var\(--(\w+)\)"><b>(.*?)</b>', html)
    tone, word = found.groups()
    return word, tone


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (document(), ("Nothing found", "good")),
        (document(POSSIBLE), ("1 possible", "warn")),
        (document(FINDING, POSSIBLE, POSSIBLE), ("1 error, 2 possible", "bad")),
        (document(FINDING, FINDING), ("2 errors", "bad")),
        (document(FINDING, ended="hung", stuck=[WAITS]), ("The script hung", "bad")),
        (document(ended="crashed", last_words=["x"]), ("The script failed", "bad")),
        (document(**NOT_BEGUN), ("The script failed", "bad")),
        (
            document(**NOT_BEGUN | {"ended": "finished"}),
            ("The script did not train on several ranks", "warn"),
        ),
    ],
)
def test_the_banner_is_the_verdict(html, content, expected):
    assert banner(html(content)) == expected


def test_a_script_that_hung_says_what_was_found_as_well(html):
    assert "The doctor found: 1 error." in text(html(document(FINDING, ended="hung")))


def test_a_finding_says_where_what_and_what_to_do(html):
    shown = text(html(document(FINDING)))
    assert "error LS01 missing_set_epoch train.py:20" in shown
    assert "seen while running passes 1 and 2 took the same order" in shown
    assert "what to do Call sampler.set_epoch(epoch)." in shown
    assert "fix it with" not in shown


def test_a_possible_finding_comes_after_errors_and_names_its_fix(html):
    shown = text(html(document(POSSIBLE, FINDING)))
    assert shown.index("error LS01") < shown.index("possible LS27")
    assert "seen in the source every key begins with module." in shown
    assert "lockstep doctor --unsafe-fixes: save model.module" in shown


def test_cards_show_the_run(html):
    shown = text(html(document()))
    for card in (
        "ranks 2 over gloo",
        "steps 18 in 7.8 s",
        "effective global batch 18 9 + 9 samples",
        "reductions per step 1",
        "waiting for data 6%",
        "learning rate 0.1 → 0.025 the same on all ranks",
    ):
        assert card in shown


def test_the_page_shows_rates_that_differ_between_ranks_and_accumulation(html):
    rates = [[[0.1, 1.0], [0.1, 1.0]], [[0.2, 1.0], [0.2, 1.0]]]
    shown = text(html(document(rates=rates, batches_per_step=4)))
    assert "learning rate 0.1 differs between ranks" in shown
    assert "the first of 2 parameter groups" in shown
    assert "9 + 9 samples, 4 batches each" in shown


def test_a_pass_has_all_its_numbers(html):
    shown = text(html(document()))
    assert "Training, from the loader at data.py:12: 101 samples." in shown
    assert "1 51 + 50 99 3 4 2 7 same yes" in shown


def test_a_pass_without_indices_shows_what_is_known(html):
    nothing = dict.fromkeys(
        ("epoch", "data_set", "distinct", "shared", "twice", "missing", "order")
    )
    shown = text(html(document(passes=[PASS | nothing | {"complete": False, "trains": False}])))
    assert "Evaluation, from the loader at data.py:12." in shown
    assert "1 51 + 50 - - - - - - no" in shown


def test_many_passes_and_files_are_cut(html):
    files = [{"path": f"{n}.pt", "ranks": list(range(64))} for n in range(1000)]
    found = html(document(passes=[PASS | {"pass": n} for n in range(1000)], files=files))
    assert "And 960 more passes." in text(found)
    assert "And 960 more." in text(found)
    assert "ranks 0 to 63 0.pt" in text(found)
    assert len(found) < 100_000


def test_the_page_tells_drift_from_no_drift(html):
    assert "parameters equal to the bit on all ranks, in the 6 steps" in text(html(document()))
    drift = {"looked": 6, "parameters_differ_after_step": 3, "buffers_differ": True}
    shown = text(html(document(drift=drift)))
    assert "parameters differ between ranks from step 3 on" in shown
    assert "buffers differ between ranks" in shown


def test_the_oracle_speaks_in_sentences(html):
    shown = text(html(document()))
    assert "one process repeated the first step of the 2 ranks" in shown
    assert "and they have. The largest relative difference of any parameter is 1.9e-07" in shown
    assert "The process computed batch norm and dropout rank by rank" in shown
    differs = AGREES | {"verdict": "differs", "worst": 0.5, "first": "fc.weight", "by_rank": []}
    shown = text(html(document(oracle=differs | {"ratio": 0.5})))
    assert "they differ by up to 0.5, where rounding alone explains 0.00035" in shown
    assert "first parameter that differs is fc.weight" in shown
    assert "has the same direction but 0.5 times the length" in shown
    assert "rank by rank" not in shown
    assert "the angle between them is 0.300" in text(
        html(document(oracle=differs | {"cosine": 0.3}))
    )


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_the_oracle_can_have_no_numbers(html, value):
    numbers = dict.fromkeys(("worst", "ratio", "cosine", "first"), value)
    shown = text(html(document(oracle=AGREES | numbers | {"verdict": "differs"})))
    assert "they differ by up to -" in shown
    assert "angle" not in shown


def test_an_oracle_without_a_verdict_says_why(html):
    oracle = {"verdict": "impossible", "why": "no rank came to its first step"}
    shown = text(html(document(oracle=oracle)))
    assert "no verdict: no rank came to its first step." in shown


def test_of_a_hang_each_rank_is_shown_and_equal_ones_together(html):
    other = WAITS | {"rank": 3, "doing": "loading data", "last_collective": None, "stack": []}
    stuck = [WAITS, WAITS | {"rank": 1}, other, other | {"rank": None}]
    found = html(document(ended="hung", ranks=5, stuck=stuck))
    shown = text(found)
    assert "ranks 0, 1 was all_reduce at train.py:26 last collective all_reduce" in shown
    assert "rank 3 and 1 process without a rank was loading data" in shown
    assert "Ranks 2, 4 had already exited" in shown
    assert "<b>train.py:26 in main</b>" in found, "the script's own line stands out"
    assert "<b>/lib" not in found


def test_of_a_crash_the_last_words_are_shown(html):
    found = html(document(ended="crashed", last_words=["  a = b", "[rank1]: ValueError: no"]))
    assert "<pre>  a = b\n<b>[rank1]: ValueError: no</b></pre>" in found
    assert "Where each rank was" not in found


def test_the_page_explains_how_to_see_the_unseen_parts(html):
    shown = text(html(document()))
    assert "a second epoch Let each epoch end early with --batches 5" in shown
    assert "a resume Give the arguments that make the script resume: --resume" in shown
    assert "Not part of this run" in shown
    assert "Not part of this run" not in text(html(document(not_seen=[])))


def test_a_run_that_never_began_shows_its_last_words_and_no_empty_sections(html):
    shown = text(html(document(**NOT_BEGUN)))
    assert "before its ranks met" in shown
    assert "--data is required" in shown
    for heading in ("What to fix", "What the run showed", "samples", "one model", "Not part of"):
        assert heading not in shown


@pytest.mark.parametrize("missing", [None, *RUN])
def test_any_fact_may_be_missing(html, missing):
    content = document(FINDING, stuck=[WAITS])
    del content["run"][missing or "passes"]
    if missing is None:
        content["run"] = {"ended": "hung", "ranks": 2, "steps": 3}
    assert "LS01" in html(content)


def test_no_run_and_unreadable_files_make_a_page_too(html):
    assert banner(html({"findings": [FINDING]})) == ("1 error", "bad")
    assert banner(html({})) == ("Nothing found", "good")
    assert "x.py cannot be read" in html(document() | {"errors": ["x.py cannot be read"]})


def test_frameworks_and_faked_gpus_are_named(html):
    shown = text(html(document(fake_cuda=["2 GPUs"]) | {"frameworks": ["Lightning"]}))
    assert "The CPU stood in for 2 GPUs." in shown
    assert "The script uses Lightning." in shown


def hostile(value):
    """The same, with every text replaced by one that would like to be HTML."""
    if isinstance(value, dict):
        return {key: v if key in CHOSEN else hostile(v) for key, v in value.items()}
    if isinstance(value, list):
        return [hostile(v) for v in value]
    return "<u>&\"'</pre><script>alert(1)</script>" if isinstance(value, str) else value


CHOSEN = ("severity", "seen", "ended", "verdict")
"""Words of our own; the rest comes from anyone's script."""


@pytest.mark.parametrize("ended", ["finished", "hung", "crashed"])
@pytest.mark.parametrize("oracle", [AGREES, AGREES | {"verdict": "differs", "first": "fc"}])
def test_text_stays_text(html, ended, oracle):
    content = document(
        FINDING, POSSIBLE, ended=ended, oracle=oracle, stuck=[WAITS], last_words=["x"]
    )
    found = html(hostile(content | {"errors": ["x"], "frameworks": ["x"]}), "<b>&.py")
    assert "<script" not in found
    assert "<u>" not in found
    assert escape("<b>&.py: lockstep doctor") in found
    assert found.count("<pre>") == found.count("</pre>")


def test_the_page_is_small_and_opens_offline(html):
    found = html(document(FINDING, POSSIBLE, ended="hung", stuck=[WAITS]))
    assert len(found) < 100_000
    assert not re.search(r"https?://|\b(?:src|href)\s*=|@import|url\(|<script", found)
    assert "default-src 'none'" in found


def test_it_is_written_without_torch_and_plotly(tmp_path):
    code = (
        "import sys; from pathlib import Path; from lockstep.report.doctor import write_doctor\n"
        "write_doctor(Path(sys.argv[1]), {}, 'train.py')\n"
        "heavy = {'torch', 'numpy', 'plotly', 'rich'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "report.html")], check=True)
