"""Draw the load of the hospitals by measure, from the table that `covey results` writes.

python3 plot.py results.csv load.svg
"""

import csv
import sys
from collections import defaultdict
from statistics import mean

WIDTH, ROW, LEFT = 640, 26, 190


def main() -> None:
    source, target = sys.argv[1:]
    loads: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    with open(source, encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["state"] == "done":
                loads[row["town"], row["r0"], row["measure"]].append(float(row["load"]))
    most = max(max(found) for found in loads.values())
    scale = (WIDTH - LEFT - 40) / max(most, 1.0)
    lines = []
    for number, ((town, r0, measure), found) in enumerate(sorted(loads.items())):
        y = 30 + number * ROW
        colour = "#c0392b" if mean(found) > 1 else "#27ae60"
        width = mean(found) * scale
        lines.append(f'<text x="8" y="{y + 13}">{town}, R0 {r0}, {measure}</text>')
        lines.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="16" fill="{colour}"/>')
        low, high = min(found) * scale + LEFT, max(found) * scale + LEFT
        lines.append(f'<path d="M{low:.1f} {y + 8}H{high:.1f}" stroke="#333"/>')
    height = 40 + len(loads) * ROW
    full = LEFT + scale
    with open(target, "w", encoding="utf-8") as file:
        file.write(
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            'font-family="sans-serif" font-size="12">\n'
            '<rect width="100%" height="100%" fill="white"/>\n'
            '<text x="8" y="18">Hospital beds needed at the peak, over beds there are</text>\n'
            + "\n".join(lines)
            + f'\n<path d="M{full:.1f} 24V{height - 8}" stroke="#333" stroke-dasharray="4"/>\n'
            "</svg>\n"
        )
    print(f"{target}: {len(loads)} bars from {sum(map(len, loads.values()))} runs")


if __name__ == "__main__":
    main()
