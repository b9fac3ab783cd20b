"""Paint a drawing as PDF."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from lockstep.assess.certificate.layout import HEIGHT, WIDTH, Circle, Path, Shape, Text
from lockstep.errors import AssessError


def pdf(shapes: list[Shape], word: str) -> bytes:
    """Return the PDF file, which contains `word` for programs."""
    try:
        from reportlab.pdfgen.canvas import Canvas
    except ModuleNotFoundError:
        raise AssessError(
            "the certificate's PDF needs reportlab. Install it with: pip install 'lockstep[lab]'"
        ) from None
    output = BytesIO()
    canvas = Canvas(output, pagesize=(WIDTH, HEIGHT))
    canvas.setTitle("Certificate of competency")
    canvas.setCreator("lockstep")
    canvas.setKeywords(word)
    for shape in shapes:
        if isinstance(shape, Text):
            _write(canvas, shape)
        else:
            _paint(canvas, shape)
    canvas.showPage()
    canvas.save()
    return output.getvalue()


def _write(canvas: Any, shape: Text) -> None:
    from reportlab.pdfbase.pdfmetrics import stringWidth

    from lockstep.assess.certificate.fonts import runs

    parts = runs(shape.text, bold=shape.bold)
    width = sum(stringWidth(text, font, shape.size) for font, text in parts)
    width += shape.spacing * (len(shape.text) - 1)
    x = shape.x - (width / 2 if shape.anchor == "middle" else 0)
    line = canvas.beginText(x, HEIGHT - shape.y)
    line.setFillColor(shape.colour)
    line.setCharSpace(shape.spacing)
    for font, text in parts:
        line.setFont(font, shape.size)
        line.textOut(text)
    canvas.drawText(line)


def _paint(canvas: Any, shape: Path | Circle) -> None:
    if shape.fill is not None:
        canvas.setFillColor(shape.fill)
    if shape.stroke is not None:
        canvas.setStrokeColor(shape.stroke)
        canvas.setLineWidth(shape.width)
    how = {"fill": int(shape.fill is not None), "stroke": int(shape.stroke is not None)}
    if isinstance(shape, Circle):
        canvas.circle(shape.x, HEIGHT - shape.y, shape.radius, **how)
        return
    path = canvas.beginPath()
    first, *rest = ((x, HEIGHT - y) for x, y in shape.points)
    path.moveTo(*first)
    for point in rest:
        path.lineTo(*point)
    if shape.closed:
        path.close()
    canvas.drawPath(path, **how)
