import json
import re

import pytest

from lockstep.report.comparison import write_comparison_report


@pytest.fixture
def runs(tmp_path):
    """Makes the summary of a run and a folder with its metrics."""

    def make(name, seconds, accuracy, reached=1.5):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        records = [
            {"kind": "train", "step": 1, "seconds": 0.1, "loss": 2.0},
            {"kind": "test", "step": 12, "seconds": seconds / 2, "accuracy": 0.5},
            {"kind": "test", "step": 24, "seconds": seconds, "accuracy": accuracy},
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
        return {
            "seconds": seconds,
            "samples_per_second": 1e4 / seconds,
            "metrics": {"accuracy": accuracy},
            "seconds_to_target": reached,
            "folder": str(folder),
        }

    return make


@pytest.fixture
def document(runs):
    fast = {
        "one": [runs("f10", 8.0, 0.97), runs("f11", 10.0, 0.96)],
        "many": [runs("f20", 4.0, 0.975), runs("f21", 6.0, 0.955, reached=None)],
        "speed_up": 1.8,
        "efficiency": 0.9,
        "largest_difference": 0.0123,
        "identical": False,
    }
    exact = {
        "one": [runs("e10", 20.0, 0.97), runs("e11", 20.0, 0.96)],
        "many": [runs("e20", 16.0, 0.97), runs("e21", 16.0, 0.96)],
        "speed_up": 1.25,
        "efficiency": 0.625,
        "largest_difference": 0.0,
        "identical": True,
    }
    return {
        "recipe": "digits",
        "metric": "accuracy",
        "lower_is_better": False,
        "replicas": 2,
        "seeds": [0, 1],
        "margin": 0.01,
        "target": 0.95,
        "modes": {"fast": fast, "exact": exact},
        "accuracy": {
            "one": [0.97, 0.96],
            "many": [0.975, 0.955],
            "differences": [0.005, -0.005],
            "mean_difference": 0.0,
            "bound": -0.0081,
            "confidence": 0.95,
            "retained": True,
            "sentence": "The accuracy is retained.",
        },
        "verdict": {"ok": True, "sentence": "Same training, 1.8 times as fast."},
    }


@pytest.fixture
def report(tmp_path):
    """Writes the page; its text without Plotly's own script."""

    def write(document):
        path = tmp_path / "comparison.html"
        assert write_comparison_report(document, path) == path
        return re.sub(r"<(script|style)>.*?</\1>", "", path.read_text(), flags=re.DOTALL)

    return write


def figures(html):
    found = re.findall(
        r'<figcaption>(.*?)</figcaption>.*?<script type="application/json">(.*?)</script>',
        html,
        re.DOTALL,
    )
    return {title: json.loads(text, parse_constant=pytest.fail) for title, text in found}


def rows(html):
    """The cells of every table row under the row's name."""
    found = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', html)
    return {name: re.findall("<td>(.*?)</td>", cells) for name, cells in found}


def test_the_verdict_is_a_word_and_a_sentence(report, document):
    assert "<b>Passed</b>Same training, 1.8 times as fast." in report(document)
    document["verdict"] = {"ok": False, "sentence": "No."}
    assert "<b>Failed</b>No." in report(document)


def test_the_table_compares_the_modes(report, document):
    found = rows(report(document))
    assert found["time, 1 replica"] == ["9.0 s", "20.0 s"]
    assert found["time, 2 replicas"] == ["5.0 s", "16.0 s"]
    assert found["speed-up"] == ["1.80x", "1.25x"]
    assert found["efficiency"] == ["90%", "62%"]
    assert found["accuracy, 2 replicas"] == ["0.965", "0.965"]
    assert found["time to accuracy 0.95, 2 replicas"] == ["1.5 s (1 of 2 never)", "1.5 s"]
    assert found["largest difference of any weight"] == ["0.0123", "0"]
    assert found["identical to the bit"] == ["no", "yes"]


def test_there_is_a_curve_for_each_run_and_a_legend_entry_for_each_group(report, document):
    found = figures(report(document))
    for title in ("Test accuracy against seconds", "Test accuracy against steps"):
        *curves, target = found[title]["data"]
        assert len(curves) == 8
        assert [c["name"] for c in curves if c["showlegend"]] == [
            "fast, 1 replica",
            "exact, 1 replica",
            "fast, 2 replicas",
            "exact, 2 replicas",
        ]
        assert target["name"] == "target 0.95"
    assert found["Test accuracy against seconds"]["data"][0]["x"] == [4.0, 8.0]
    assert found["Test accuracy against steps"]["data"][0]["x"] == [12, 24]


def test_the_speed_up_is_drawn_beside_the_ideal(report, document):
    ideal, fast, exact = figures(report(document))["Speed-up"]["data"]
    assert (ideal["x"], ideal["y"]) == ([1, 2], [1, 2])
    assert (fast["y"], exact["y"]) == ([1, 1.8], [1, 1.25])


def test_several_seeds_show_their_differences_with_the_margin(report, document):
    html = report(document)
    [title] = [title for title in figures(html) if title.startswith("Difference of each seed")]
    figure = figures(html)[title]
    assert figure["data"][0]["y"] == [0.005, -0.005]
    [band] = figure["layout"]["shapes"]
    assert (band["y0"], band["y1"]) == (-0.01, 0.01)
    assert rows(html)["seed 1"] == ["0.96", "0.955", "-0.005"]
    assert rows(html)["bound, 95% confidence"][-1] == "-0.0081"


def test_one_seed_has_no_picture_of_differences_and_no_bound(report, document):
    for mode in document["modes"].values():
        mode["one"], mode["many"] = mode["one"][:1], mode["many"][:1]
    document["seeds"] = [0]
    document["accuracy"] |= {"one": [0.97], "many": [0.975], "differences": [0.005], "bound": None}
    html = report(document)
    assert not [title for title in figures(html) if title.startswith("Difference")]
    assert "confidence" not in html
    assert "means over" not in html


@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_one_mode_alone_is_enough(report, document, mode):
    document["modes"] = {mode: document["modes"][mode]}
    html = report(document)
    assert len(rows(html)["speed-up"]) == 1
    assert ("Exact mode:" in html) == (mode == "exact")


def test_runs_whose_folders_are_gone_leave_no_curves(report, document):
    for mode in document["modes"].values():
        for run in (*mode["one"], *mode["many"]):
            run["folder"] = "/nowhere/at/all"
    del mode["one"][0]["folder"]
    html = report(document)
    assert "The runs left no records." in html
    assert "Test accuracy against steps" not in figures(html)


def test_runs_that_failed_leave_dashes(report, document):
    nan = float("nan")
    fast = document["modes"]["fast"]
    fast |= {"speed_up": None, "efficiency": None, "largest_difference": nan}
    fast["many"] = [{"status": "failed"}, {"status": "failed"}]
    document["accuracy"] |= {"many": [nan, nan], "differences": [nan, nan], "mean_difference": nan}
    found = rows(report(document))
    assert found["time, 2 replicas"] == ["-", "16.0 s"]
    assert found["speed-up"] == ["-", "1.25x"]
    assert found["largest difference of any weight"] == ["-", "0"]


def test_no_target_no_time_to_it(report, document):
    document["target"] = None
    assert "time to" not in report(document)


def test_the_page_is_self_contained_and_hostile_names_stay_text(report, document):
    document["recipe"] = "</script><script>alert(1)</script>"
    document["verdict"]["sentence"] = document["accuracy"]["sentence"] = document["recipe"]
    html = report(document)
    assert "<script>alert" not in html
    assert not re.search(r"https?://|\b(?:src|href)\s*=", html)
