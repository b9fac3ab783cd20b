"""stub"""

from pathlib import Path


def write_run_report(folder: Path) -> Path:
    return folder / "report.html"
