"""Writes the list of deviations into docs/classad.md, from deviations.py."""

import textwrap

from tests.classad_reference import page
from tests.classad_reference.deviations import DEVIATIONS


def main() -> None:
    text = page.text()
    head, _, rest = text.partition(f"\n## {page.DIFFERENCES}\n")
    intro = rest.split("\n- **", 1)[0].strip()
    items = [
        textwrap.fill(f"- **{one.name}.** {one.reason}", 100, subsequent_indent="  ")
        for one in DEVIATIONS
    ]
    written = f"{head}\n## {page.DIFFERENCES}\n\n{intro}\n\n" + "\n".join(items) + "\n"
    page.PAGE.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
