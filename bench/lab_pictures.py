"""Take the README's pictures of the labs in a browser.

python bench/lab_pictures.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from labs.browser import Watched, browsing, served  # noqa: E402

PICTURES = {1: "Surface of the last step", 3: "Rules start at batch"}
"""A label in the controls of the picture, by lab."""


def main() -> None:
    """Run the labs, open them, and save one picture of each."""
    with tempfile.TemporaryDirectory() as folder, browsing() as browser:
        for number, label in PICTURES.items():
            subprocess.run(
                [sys.executable, "-m", "lockstep", "lab", str(number), "--run", "--json"],
                env=os.environ | {"HOME": folder},
                stdout=subprocess.DEVNULL,
                check=True,
            )
            with served(number, Path(folder)) as address:
                page = Watched(browser.new_page(viewport={"width": 1000, "height": 1400}))
                page.open(address, number)
                picture = page.page.locator(".picture").filter(has_text=label)
                picture.scroll_into_view_if_needed()
                page.page.wait_for_timeout(1500)
                picture.screenshot(path=ROOT / "docs" / f"lab{number}.png")


if __name__ == "__main__":
    main()
