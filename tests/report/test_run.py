import json
import re

import pytest

from lockstep.engine.run.run_folder import RunFolder
from lockstep.engine.step.timeline import EXCHANGE, PARTS, WAITING
from lockstep.errors import FolderError
from lockstep.report.page import MOST_POINTS
from lockstep.report.run import write_run_report

SHA = "f9921615" * 8
RECIPE = {
    "name": "digits",
    "model": "mlp(width=32)",
    "metrics": {"accuracy": "accuracy"},
    "target": 0.97,
    "lower_is_better": False,
}
BEGUN = {
    "status": "running",
    "recipe": RECIPE,
    "exact": False,
    "replicas": 2,
    "machine": {"torch": "2.11.0", "device": "cpu"},
    "parameters": 303418,
}
FINISHED = BEGUN | {
    "status": "finished",
    "steps": 120,
    "epochs": 10.0,
    "seconds": 75.2,
    "time": {"start-up": 0.05, "training": 70.0, "evaluation": 5.2},
    "samples_per_second": 4319.87,
    "metrics": {"test_loss": 0.0428, "accuracy": 0.98611},
    "seconds_to_target": 61.0,
    "peak_memory_bytes": 2**28,
    "weights_sha256": SHA,
}


def train(step, loss=1.0, **more):
    rates = {"learning_rate": 0.1, "samples_per_second": 4000.0}
    record = {"kind": "train", "step": step, "epoch": step / 12, "seconds": step / 10, "loss": loss}
    return record | rates | more


def scored(step, accuracy=0.9, **more):
    record = {"kind": "test", "step": step, "epoch": step / 12, "seconds": step / 10}
    return record | {"test_loss": 0.5, "accuracy": accuracy} | more


RECORDS = [train(1, 2.3), train(12, 1.1), scored(12, 0.91), train(24, 0.4), scored(24, 0.98611)]


@pytest.fixture
def report(tmp_path):
    """Writes a run folder and its report; the page without Plotly's own script."""

    def write(run, records=()):
        folder = RunFolder(tmp_path)
        folder.write_summary(run)
        for record in records:
            folder.log(**record)
        text = write_run_report(tmp_path).read_text()
        return re.sub(r"<(script|style)>.*?</\1>", "", text, flags=re.DOTALL)

    return write


def figures(html):
    """Each figure's data and layout under its title."""
    found = re.findall(r"<figcaption>(.*?)</.*?json\">(.*?)</script>", html, re.DOTALL)
    return {title: json.loads(text, parse_constant=pytest.fail) for title, text in found}


def test_the_page_says_what_the_run_reached(report):
    html = report(FINISHED, RECORDS)
    for text in ("0.9861", "1 min 15 s", "4,320", "fast mode", "1 min 1 s", "accuracy ≥ 0.97"):
        assert text in html
    assert SHA in html
    assert "sha256sum weights.safetensors" in html
    assert "mlp(width=32)" in html
    assert "256 MiB" in html
    assert "banner" not in html


def test_a_noise_scale_is_drawn_beside_the_global_batch_and_not_without_one(report):
    title = "Gradient noise scale (samples)"
    assert title not in figures(report(FINISHED, RECORDS))
    noisy = [
        train(1, noise_scale=None, noise_low=0.0, noise_high=None),
        train(9, noise_scale=90.0, noise_low=50.0, noise_high=None),
    ]
    run = FINISHED | {"recipe": RECIPE | {"global_batch": 64}}
    noise, low, high, batch = figures(report(run, noisy))[title]["data"]
    assert (noise["x"], noise["y"]) == ([1, 9], [None, 90.0])
    assert (low["y"], high["y"]) == ([0.0, 50.0], [None, None])
    assert (batch["name"], batch["y"]) == ("global batch 64", [64, 64])


def test_the_curves_are_those_of_the_records(report):
    found = figures(report(FINISHED, RECORDS))
    training, test_loss = found["Loss"]["data"]
    assert (training["x"], training["y"]) == ([1, 12, 24], [2.3, 1.1, 0.4])
    assert (test_loss["x"], test_loss["y"]) == ([12, 24], [0.5, 0.5])
    accuracy, target = found["Test accuracy against seconds"]["data"]
    assert (accuracy["x"], accuracy["y"]) == ([1.2, 2.4], [0.91, 0.98611])
    assert target["y"] == [0.97, 0.97]
    assert found["Test accuracy against steps"]["data"][0]["x"] == [12, 24]
    assert found["Samples per second"]["data"][0]["y"] == [4000.0] * 3
    assert found["Learning rate"]["data"][0]["y"] == [0.1] * 3
    assert found["Where the time went"]["data"][0]["x"] == [0.05, 70.0, 5.2]


def test_a_target_may_be_missed_or_not_set(report):
    assert "not reached" in report(FINISHED | {"seconds_to_target": None})
    html = report(FINISHED | {"recipe": RECIPE | {"target": None}}, RECORDS)
    assert "time to target" not in html
    assert len(figures(html)["Test accuracy against steps"]["data"]) == 1


def test_a_failed_run_shows_its_error_and_how_far_it_came(report):
    failed = BEGUN | {"status": "failed", "error": "the loss became NaN at step <25>."}
    html = report(failed, RECORDS)
    assert "<b>Failed</b>the loss became NaN at step &lt;25&gt;." in html
    assert "24 steps, 2 epochs" in html
    assert "0.9861" in html


@pytest.mark.parametrize("status", ["interrupted", "running"])
def test_a_run_that_did_not_end_says_so(report, status):
    assert f"<b>{status.capitalize()}</b>" in report(BEGUN | {"status": status}, RECORDS)


def test_a_resumed_run_shows_each_step_once(report, tmp_path):
    report(BEGUN, RECORDS)
    RunFolder(tmp_path).forget_after(12)
    html = report(FINISHED, [train(24, 0.3), scored(24)])
    assert figures(html)["Loss"]["data"][0]["y"] == [2.3, 1.1, 0.3]


def test_a_run_without_any_record_still_has_a_page(report):
    html = report(BEGUN)
    assert "0 steps" in html
    assert "Inside a step" not in html
    assert figures(html) == {}


def test_a_run_without_tests_says_so_and_shows_its_loss(report):
    html = report(BEGUN, [train(1)])
    assert "no evaluation on the test data" in html
    assert figures(html)["Loss"]["data"][0]["x"] == [1]
    assert "no evaluation on the test data" not in report(FINISHED, RECORDS)


def test_values_that_are_no_numbers_leave_gaps_and_are_counted(report):
    nan = float("nan")
    records = [train(1), train(2, nan, samples_per_second=None), scored(2, nan, test_loss=nan)]
    html = report(FINISHED | {"metrics": {"accuracy": nan}, "samples_per_second": None}, records)
    assert figures(html)["Loss"]["data"][0]["y"] == [1.0, None]
    assert "3 of 4 values are NaN or infinite" in html


def test_a_line_cut_by_a_crash_and_lines_of_another_kind_are_passed_over(report, tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"kind": "train", "st\n3\n{"kind": "note"}\n')
    assert figures(report(FINISHED, RECORDS))["Loss"]["data"][0]["x"] == [1, 12, 24]


def test_very_many_records_are_thinned(report, tmp_path):
    lines = [json.dumps(train(step)) + "\n" for step in range(1, 20_001)]
    (tmp_path / "metrics.jsonl").write_text("".join(lines))
    for figure in figures(report(FINISHED)).values():
        assert all(len(trace["x"]) <= MOST_POINTS for trace in figure["data"])


@pytest.mark.parametrize(("losses", "axis"), [((9e5, 1.0), {"type": "log"}), ((2.3, 0.1), {})])
def test_only_a_loss_over_many_magnitudes_gets_a_log_axis(report, losses, axis):
    records = [train(step, loss) for step, loss in enumerate(losses)]
    assert figures(report(BEGUN, records))["Loss"]["layout"]["yaxis"] == axis


def test_the_page_is_self_contained_and_hostile_names_stay_text(report):
    evil = "</script><script>alert(1)</script>"
    recipe = RECIPE | {"name": evil, "model": evil, "metrics": {evil: evil}}
    run = FINISHED | {"recipe": recipe, "machine": {evil: evil}, "time": {evil: 1.0}}
    html = report(run | {"metrics": {evil: 0.5}}, [train(1), scored(1, **{evil: 0.5})])
    assert "alert(1)" in html
    assert "<script>alert" not in html
    assert not re.search(r"https?://|\b(?:src|href)\s*=", html)
    assert "Learning rate" in figures(html)


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(FolderError, match="holds no run"):
        write_run_report(tmp_path)


def measured(offset=0.0, exchange=4.0, waiting=1.0, beside=()):
    """A timeline of one replica: two steps of 20 ms, with an all-reduce at their 10th."""
    spans = [["read data", 0.0, 0.004], ["backpropagate layer 1", 0.004, 0.013]]
    spans += [[WAITING, 0.013, 0.014], ["return control", 0.014, 0.020]]
    others = [[EXCHANGE, 0.010, 0.014], *beside] if exchange else []
    steps = [
        {kind: [[part, by + a, by + b] for part, a, b in own] for kind, own in pair}
        for by in (offset, offset + 0.020)
        for pair in [(("step", spans), ("beside", others))]
    ]
    parts = dict.fromkeys(PARTS, 0.0) | {"read data": 4.0, WAITING: waiting}
    return {"parts": parts, "exchange": exchange, "step": 20.0, "detail": steps}


# A wait can be a little longer than the all-reduce, but never more than all of it.
@pytest.mark.parametrize(
    ("waiting", "said"), [(1, "1.00 ms of it (25%)"), (9, "4.00 ms of it (100%)")]
)
def test_the_timeline_says_how_much_of_the_all_reduce_is_not_hidden(report, waiting, said):
    html = report(FINISHED | {"timeline": [measured(waiting=waiting)] * 2}, RECORDS)
    assert f"The all-reduce takes 4.00 ms per step; backward does not hide {said}." in html
    assert all(part in html for part in PARTS)


def test_one_replica_has_no_all_reduce_and_no_lane_beside(report):
    html = report(FINISHED | {"timeline": [measured(exchange=0.0, waiting=0.0)]}, RECORDS)
    assert "needs no all-reduce" in html
    found = figures(html)["The last steps, 119 to 120"]
    assert found["layout"]["yaxis"]["categoryarray"] == ["replica 0"]


def starts(figure, part, lane):
    [trace] = [trace for trace in figure["data"] if trace["name"] == part]
    pairs = zip(trace["y"], trace["base"], strict=True)
    return [round(base, 6) for name, base in pairs if name == lane]


def test_replicas_on_one_clock_keep_their_distance(report):
    html = report(FINISHED | {"timeline": [measured(5.0), measured(5.003)]}, RECORDS)
    found = figures(html)["The last steps, 119 to 120"]
    assert starts(found, "read data", "replica 0") == [0.0, 20.0]
    assert starts(found, "read data", "replica 1") == [3.0, 23.0]
    assert starts(found, EXCHANGE, "beside 1") == [13.0, 33.0]


def test_replicas_on_clocks_of_their_own_meet_at_the_all_reduce(report):
    gpu = {"machine": {"device": "NVIDIA H200"}, "timeline": [measured(5.0), measured(900.0)]}
    found = figures(report(FINISHED | gpu, RECORDS))["The last steps, 119 to 120"]
    assert starts(found, EXCHANGE, "beside 0") == starts(found, EXCHANGE, "beside 1")


def test_reading_long_before_the_step_is_cut_off(report):
    reading = [["read data", -0.5, -0.4], ["transport", -0.040, -0.010]]
    found = figures(report(FINISHED | {"timeline": [measured(beside=reading)]}, RECORDS))
    found = found["The last steps, 119 to 120"]
    assert starts(found, "read data", "beside 0") == []
    # The picture reaches back as far as it reaches forward: 34 ms.
    assert starts(found, "transport", "beside 0") == [-34.0, -20.0]


def test_many_replicas_are_drawn_in_part_and_tabled_in_short(report):
    html = report(FINISHED | {"timeline": [measured(waiting=w) for w in range(1, 65)]}, RECORDS)
    assert "The pictures show the first 8 of 64 replicas." in html
    assert '<th scope="col">most, ms</th>' in html
    assert "64.00" in html


def test_a_program_shows_each_optimizer_and_each_series_of_its_own(report):
    losses = {"loss_generator": 1.0, "loss_discriminator": 2.0, "right_real": 0.5}
    rates = {"learning_rate_generator": 0.1, "learning_rate_discriminator": 0.2}
    place = {"epoch": 1.0, "seconds": 1.0}
    records = [
        {"kind": "train", "step": 1, **place, **losses, **rates},
        {"kind": "own", "step": 1, **place, "distance": 0.25, "loss_of_mine": 7.0},
    ]
    recipe = {"name": "gan", "program": "gan.py", "metrics": {}, "target": None}
    html = report(FINISHED | {"recipe": recipe, "metrics": {}}, records)
    found = figures(html)
    assert [(c["name"], c["y"]) for c in found["Loss"]["data"]] == [
        ("discriminator", [2.0]),
        ("generator", [1.0]),
    ]
    assert [c["y"] for c in found["Learning rate"]["data"]] == [[0.2], [0.1]]
    for title, value in (
        ("Right real in training", 0.5),
        ("Distance", 0.25),
        ("Loss of mine", 7.0),
    ):
        assert found[title]["data"][0]["y"] == [value]
    assert "The program" in html
    assert "no evaluation" not in html


def test_a_recipe_has_no_pictures_of_a_program(report):
    titles = set(figures(report(FINISHED, RECORDS)))
    assert not {title for title in titles if title.endswith("in training")}


def test_the_best_value_and_an_early_stop_are_shown(report):
    best = {"name": "accuracy", "value": 0.75, "step": 5, "largest": True, "sha256": "0"}
    html = report(FINISHED | {"best": best, "stopped_early": "accuracy did not improve"}, RECORDS)
    assert "after step 5, in best.safetensors" in html
    assert "Training stopped early: accuracy did not improve." in html
    assert "best.safetensors" not in report(FINISHED, RECORDS)


def test_a_program_that_only_evaluates_shows_its_values_and_no_curves(report):
    run = FINISHED | {"steps": 0, "loaded": "runs/a/best.safetensors"}
    html = report(run, [scored(0, 0.5)])
    assert figures(html) == {}
    assert "The run evaluated runs/a/best.safetensors and wrote no weights." in html
