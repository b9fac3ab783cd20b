"""A lab in a real browser: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import os
import re
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lockstep.labs.shared.catalogue import lab

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE = 120.0
"""Seconds, for a machine that does other things as well."""
LAST = "What to remember"
"""The heading of every lab's last cell."""
DRAWN = """count => {
  const all = pictures(document);
  return all.length === count && all.every(one => one.dataset.turn !== undefined);
}"""
# Widgets live in shadow trees, which selectors of the page do not enter.
HELPERS = """
window.pictures = function pictures(root) {
  const found = [...root.querySelectorAll(".picture")];
  for (const node of root.querySelectorAll("*")) {
    if (node.shadowRoot) found.push(...pictures(node.shadowRoot));
  }
  return found;
};
window.overflowing = function overflowing() {
  const wide = document.documentElement.clientWidth, found = [];
  const visit = (node, clipped) => {
    if (node.id === "js-plotly-tester") return;  // where Plotly measures text, off the screen
    const style = getComputedStyle(node), box = node.getBoundingClientRect();
    if (style.display === "none" || style.visibility === "hidden" || style.opacity === "0") return;
    const off = box.width && box.height && (box.right > wide + 1 || box.left < -1);
    if (off && !clipped && !node.closest(".katex-mathml")) {
      found.push(`${node.tagName} ${node.className} ${box.left}..${box.right}`);
    }
    // What scrolls inside its own box, or is cut there, does not widen the page.
    const cuts = clipped || (style.overflowX !== "visible" && box.right <= wide + 1);
    for (const child of [...node.children, ...(node.shadowRoot ? node.shadowRoot.children : [])]) {
      visit(child, cuts);
    }
  };
  visit(document.body, false);
  return found;
};
"""


def installed() -> bool:
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return False
    return CHROMIUM is not None


needs_browser = pytest.mark.skipif(
    not installed(), reason="needs chromium (apt install chromium) and playwright"
)


@contextmanager
def served(number: int, home: Path) -> Iterator[str]:
    """The address of a lab that `lockstep lab` serves."""
    with socket.socket() as one:
        # The first that is free might be taken by another test before it is served.
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    own = ["--no-browser", "--port", str(port)]
    command = [sys.executable, "-m", "lockstep", "lab", str(number), *own]
    process = subprocess.Popen(
        command,
        env=os.environ | {"HOME": str(home), "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        yield _address(process)
    finally:
        process.terminate()
        process.communicate()


def _address(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    said, until = b"", time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if select.select([process.stdout], [], [], 0.5)[0]:
            part = os.read(process.stdout.fileno(), 4096)
            said += part
            found = re.search(rb"http://\S+", said)
            if found:
                return found[0].decode()
            if not part:
                break
    raise AssertionError(f"the lab was not served: {said.decode()}")


class Watched:
    """A page, and what went wrong on it."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        self.outside: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", self._asked)
        page.add_init_script(HELPERS)
        page.set_default_timeout(1000 * PATIENCE)

    def _said(self, message: Any) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def _asked(self, request: Any) -> None:
        if not re.match(r"(data|blob):|(http|ws)://127\.0\.0\.1", request.url):
            self.outside.append(request.url)

    def open(self, address: str, number: int) -> None:
        """Until every picture of a lab is drawn and the last cell's text is there."""
        self.page.goto(address)
        self.page.get_by_text(LAST, exact=False).first.wait_for()
        written = lab(number).notebook.read_text().count("page.picture(")
        self.page.wait_for_function(DRAWN, arg=written)

    def turns(self) -> list[str]:
        return self.page.evaluate("() => pictures(document).map(one => one.dataset.turn)")


@contextmanager
def browsing() -> Iterator[Any]:
    """A browser without a screen; WebGL is drawn by the CPU."""
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=flags)
        try:
            yield browser
        finally:
            browser.close()
