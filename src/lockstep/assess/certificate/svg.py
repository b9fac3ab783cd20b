"""Paint a drawing as SVG."""

from __future__ import annotations

from html import escape

from lockstep.assess.certificate.layout import HEIGHT, WIDTH, Circle, Path, Shape, Text

FONTS = "'DejaVu Sans', 'Noto Sans', 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"


def svg(shapes: list[Shape], word: str) -> bytes:
    """Return the SVG file, which contains `word` for programs."""
    body = "\n".join(_element(shape) for shape in shapes)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" \
width="297mm" height="210mm" font-family="{FONTS}">
<title>Certificate of competency</title>
<metadata>{escape(word)}</metadata>
{body}
</svg>
""".encode()


def _element(shape: Shape) -> str:
    if isinstance(shape, Text):
        spacing = f' letter-spacing="{shape.spacing:g}"' if shape.spacing else ""
        weight = ' font-weight="bold"' if shape.bold else ""
        return (
            f'<text x="{shape.x:g}" y="{shape.y:g}" font-size="{shape.size:.4g}" '
            f'text-anchor="{shape.anchor}" fill="{shape.colour}"{weight}{spacing}>'
            f"{escape(shape.text)}</text>"
        )
    if isinstance(shape, Circle):
        return f'<circle cx="{shape.x:g}" cy="{shape.y:g}" r="{shape.radius:g}" {_paint(shape)}/>'
    points = " ".join(f"{x:.2f},{y:.2f}" for x, y in shape.points)
    name = "polygon" if shape.closed else "polyline"
    return f'<{name} points="{points}" {_paint(shape)}/>'


def _paint(shape: Path | Circle) -> str:
    line = f' stroke="{shape.stroke}" stroke-width="{shape.width:g}"' if shape.stroke else ""
    return f'fill="{shape.fill or "none"}"{line}'
