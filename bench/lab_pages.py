"""How soon a slider's picture is there, how smooth a drag and a play are, how long a lab takes.

python bench/lab_pages.py --save bench/results/labs.json

Each control of each picture is moved five times in chromium; a move ends when the new figure is
drawn. A drag is 60 moves of the first slider in two seconds, as a hand makes them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from labs.browser import Watched, browsing, served
from lockstep.labs.shared.catalogue import labs

MOVE = """async ([place, control]) => {
  const picture = pictures(document)[place];
  const one = picture.querySelectorAll(".control input, .control select")[control];
  picture.scrollIntoView({block: "center"});
  await new Promise(requestAnimationFrame);
  const before = picture.dataset.turn;
  if (one.type === "checkbox") one.checked = !one.checked;
  else if (one.tagName === "SELECT") one.value = (Number(one.value) + 1) % one.options.length;
  else one.value = one.value === one.max ? Number(one.value) - 1 : Number(one.value) + 1;
  const began = performance.now();
  one.dispatchEvent(new Event(one.type === "range" ? "input" : "change"));
  while (picture.dataset.turn === before) await new Promise(requestAnimationFrame);
  await new Promise(requestAnimationFrame);
  return performance.now() - began;
}"""
DRAG = """async place => {
  const picture = pictures(document)[place], one = picture.querySelector("input[type=range]");
  if (!one || one.name === "frame") return null;
  let figures = 0, longest = 0, last = performance.now();
  const watcher = new MutationObserver(() => { figures += 1; });
  watcher.observe(picture, {attributes: true, attributeFilter: ["data-turn"]});
  const began = performance.now();
  for (let k = 0; k < 60; k += 1) {
    one.value = Math.round((k / 59) * Number(one.max));
    one.dispatchEvent(new Event("input"));
    while (performance.now() - began < (k + 1) * 33) {
      await new Promise(requestAnimationFrame);
      longest = Math.max(longest, performance.now() - last);
      last = performance.now();
    }
  }
  const seconds = (performance.now() - began) / 1000;
  watcher.disconnect();
  return {figures_per_second: figures / seconds, longest_pause_ms: longest};
}"""
PLAY = """async place => {
  const picture = pictures(document)[place], player = picture.querySelector(".player");
  if (player.hidden) return null;
  await new Promise(done => setTimeout(done, 1000));  // what is on its way stops a play
  player.querySelector("button").click();
  let frames = 0, longest = 0, last = performance.now();
  const began = last;
  const plays = () => player.querySelector("button").textContent === "Pause";
  while (plays() && performance.now() - began < 5000) {
    await new Promise(requestAnimationFrame);
    longest = Math.max(longest, performance.now() - last);
    last = performance.now();
    frames += 1;
  }
  return {frames_per_second: frames / ((last - began) / 1000), longest_pause_ms: longest};
}"""


def main() -> None:
    """Measure all labs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--save", type=Path)
    parser.add_argument("--labs", default="0,1,2,3")
    parser.add_argument("--moves", type=int, default=5)
    asked = parser.parse_args()
    chosen = [int(number) for number in asked.labs.split(",")]
    found = {}
    with tempfile.TemporaryDirectory() as home:
        for lab in labs():
            if lab.number in chosen:
                found[str(lab.number)] = measured(lab.number, Path(home), asked.moves)
                print(json.dumps({lab.number: summary(found[str(lab.number)])}))
    document = {
        "command": "python bench/lab_pages.py",
        "machine": {"cpus": os.cpu_count(), "machine": platform.machine()},
        "labs": found,
    }
    if asked.save:
        asked.save.write_text(json.dumps(document, indent=1) + "\n")


def measured(number: int, home: Path, moves: int) -> dict[str, object]:
    """One lab: headless, then in the browser."""
    run = subprocess.run(
        [sys.executable, "-m", "lockstep", "lab", str(number), "--run", "--json"],
        env=os.environ | {"HOME": str(home)},
        capture_output=True,
        check=True,
    )
    headless = json.loads(run.stdout)["seconds"]
    with served(number, home) as address, browsing() as browser:
        watched = Watched(browser.new_page(viewport={"width": 1280, "height": 900}))
        watched.open(address, number)
        pictures = []
        for place in range(len(watched.turns())):
            controls = watched.page.locator(".picture").nth(place)
            count = controls.locator(".control input, .control select").count()
            found = [
                [moved(watched, place, control) for _ in range(moves)] for control in range(count)
            ]
            pictures.append(
                {
                    "moves_ms": [[move["ms"] for move in control] for control in found],
                    "stolen": [[move["stolen"] for move in control] for control in found],
                    "drag": watched.page.evaluate(DRAG, place),
                    "play": watched.page.evaluate(PLAY, place),
                }
            )
    return {"headless_seconds": headless, "pictures": pictures}


def moved(watched: Watched, place: int, control: int) -> dict[str, float]:
    """How long one move took, and the share of the CPU time that the host took away in it."""
    before = cpu_time()
    ms = watched.page.evaluate(MOVE, [place, control])
    whole, stolen = (now - then for now, then in zip(cpu_time(), before, strict=True))
    return {"ms": ms, "stolen": stolen / max(1, whole)}


def cpu_time() -> tuple[int, int]:
    """In ticks, since the machine started: all, and what its host gave to others."""
    ticks = [int(part) for part in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return sum(ticks), ticks[7]


def summary(lab: dict[str, object]) -> dict[str, object]:
    """Median and slowest move, slowest drag and play."""
    pictures: list[dict[str, object]] = lab["pictures"]  # type: ignore[assignment]
    moves, stolen = (
        [value for one in pictures for control in one[what] for value in control]  # type: ignore[attr-defined]
        for what in ("moves_ms", "stolen")
    )
    slowest = sorted(zip(moves, stolen, strict=True), reverse=True)[:3]
    return {
        "headless_seconds": lab["headless_seconds"],
        "moves": len(moves),
        "median_ms": median(moves) if moves else None,
        "slowest": [{"ms": ms, "stolen": share} for ms, share in slowest],
        "drag": [one["drag"] for one in pictures],
        "play": [one["play"] for one in pictures],
    }


if __name__ == "__main__":
    main()
