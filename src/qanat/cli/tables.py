"""Plain tables for people: aligned columns, numbers to the right, no frames."""

from collections.abc import Sequence

from qanat.events.ranges import printable


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows under heads; a column of numbers is aligned to the right, with commas between thousands."""
    texts = [[_text(cell) for cell in row] for row in rows]
    numeric = [any(isinstance(row[i], int | float) for row in rows) for i in range(len(heads))]
    widths = [max(len(line[i]) for line in [list(heads), *texts]) for i in range(len(heads))]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        ).rstrip()

    return "\n".join([line(heads), *(line(cells) for cells in texts)])


def _text(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else printable(str(cell))
