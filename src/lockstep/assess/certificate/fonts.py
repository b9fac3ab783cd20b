"""Fonts for a PDF: write each letter in the first font of this machine that has it."""

from __future__ import annotations

from functools import cache
from itertools import groupby
from pathlib import Path

import reportlab
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfbase.ttfonts import TTFError, TTFont

from lockstep.errors import AssessError

PLACES = (
    "/usr/share/fonts",
    "/usr/local/share/fonts",
    "~/.local/share/fonts",
    "~/.fonts",
    "/Library/Fonts",
    "/System/Library/Fonts",
    "C:/Windows/Fonts",
    str(Path(reportlab.__file__).parent / "fonts"),
)
LIKED = ("DejaVuSans", "LiberationSans-Regular", "NotoSans-Regular", "arial", "Arial", "Vera")
"""Preferred fonts: without serifs and with many letters."""
BOLD = {"DejaVuSans": "DejaVuSans-Bold", "Vera": "VeraBd"} | {
    f"{name}-Regular": f"{name}-Bold" for name in ("LiberationSans", "NotoSans")
}
MOST = 400
"""How many other fonts to search."""
BUILT_IN = {False: "Helvetica", True: "Helvetica-Bold"}
ASIAN = (
    ("HYSMyeongJo-Medium", ((0xAC00, 0xD7A3), (0x1100, 0x11FF))),
    ("HeiseiMin-W3", ((0x3040, 0x30FF),)),
    ("STSong-Light", ((0x3000, 0x303F), (0x4E00, 0x9FFF), (0xFF00, 0xFFEF))),
)
"""Fonts that every PDF reader includes, and the letters they cover."""


def runs(text: str, *, bold: bool = False) -> list[tuple[str, str]]:
    """Split a text into (font, letters); refuse letters that no font here has."""
    fonts = [_font_of(letter, bold) for letter in text]
    missing = sorted({c for c, font in zip(text, fonts, strict=True) if font is None})
    if missing:
        raise AssessError(
            f"no font on this machine has {' '.join(missing)}, so lockstep cannot write the "
            "PDF. Install a font that has (on Debian: apt install fonts-noto), or give --name in "
            "other letters."
        )
    pairs = zip((str(font) for font in fonts), text, strict=True)
    return [
        (font, "".join(letter for _, letter in group))
        for font, group in groupby(pairs, key=lambda pair: pair[0])
    ]


@cache
def _font_of(letter: str, bold: bool) -> str | None:
    code = ord(letter)
    for path in _files():
        if path.stem in LIKED and (found := _has(path, code, bold)):
            return found
    if 0x20 <= code <= 0x7E:
        return BUILT_IN[bold]
    for path in _files():
        if path.stem not in LIKED and (found := _has(path, code, bold=False)):
            return found
    for name, ranges in ASIAN:
        if any(low <= code <= high for low, high in ranges):
            pdfmetrics.registerFont(UnicodeCIDFont(name))
            return name
    return None


def _has(path: Path, code: int, bold: bool) -> str | None:
    """Return the name of a font that has a letter, the bold variant if it has the letter too."""
    if bold and path.stem in BOLD:
        other = path.with_stem(BOLD[path.stem])
        if other.is_file() and (found := _has(other, code, bold=False)):
            return found
    font = _loaded(path)
    return font.fontName if font is not None and code in font.face.charToGlyph else None


@cache
def _loaded(path: Path) -> TTFont | None:
    try:
        font = TTFont(path.stem, str(path))
        pdfmetrics.registerFont(font)
    except (TTFError, OSError, ValueError, KeyError):
        return None  # reportlab cannot read this kind of font
    return font


@cache
def _files() -> tuple[Path, ...]:
    found: dict[str, Path] = {}
    for place in PLACES:
        folder = Path(place).expanduser()
        for path in sorted(folder.rglob("*.ttf")) if folder.is_dir() else ():
            found.setdefault(path.stem, path)
    liked = [found[name] for name in LIKED if name in found]
    others = [p for n, p in sorted(found.items()) if n not in LIKED and "Mono" not in n]
    return (*liked, *others[:MOST])
