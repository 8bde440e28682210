"""How fast is a CSV file read as a stream, and in how much memory? A short file and one a hundred times longer.

    python benchmarks/csv_stream.py [--rows ROWS]

Each file is read, and played through in stretches, by a process of its own, whose whole memory is told (that of
Python and NumPy alone is most of it). Seconds are those of the processor. The time is also given as a ratio to the
least that anyone could do in Python: read the rows with the csv module and make each cell a number.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from samuel.online.streams import CsvStream

STRETCH = 2**15


def write(path: Path, rows: int) -> None:
    """Five columns of numbers, one of words and a target."""
    random = np.random.default_rng(0)
    days = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
    with path.open("w") as file:
        file.write("a,b,c,d,e,day,y\n")
        for start in range(0, rows, 1000):
            numbers = random.normal(size=(min(1000, rows - start), 6)).round(4).tolist()
            file.writelines(
                f"{','.join(map(str, row[:5]))},{days[(start + number) % 7]},{row[5]}\n"
                for number, row in enumerate(numbers)
            )


def measure(rows: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.csv"
        write(path, rows)
        began = time.process_time()
        stream = CsvStream(path, "y")
        read = time.process_time() - began
        rounds = stream.rounds or 0
        for start in range(0, rounds, STRETCH):
            stream.data(start, min(rounds, start + STRETCH))
        played = time.process_time() - began - read
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        began = time.process_time()
        with path.open(newline="") as file:
            lines = csv.reader(file)
            next(lines)
            for line in lines:
                [float(cell) for cell in line[:5]], float(line[6])
        plain = time.process_time() - began
        size = path.stat().st_size / 2**20
    return {"size": size, "rounds": rounds, "read": read, "played": played, "plain": plain, "peak": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the longer file")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    print(f"{'rows':>10} {'file':>9} {'rows/s read':>12} {'rows/s played':>14} {'time/plain':>11} {'peak memory':>12}")
    for rows in (options.rows // 100, options.rows):
        command = [sys.executable, __file__, "--measure", str(rows)]
        seen = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(
            f"{rows:>10,} {seen['size']:>6.1f} MB {rows / seen['read']:>12,.0f} "
            f"{seen['rounds'] / seen['played']:>14,.0f} {seen['read'] / seen['plain']:>11.2f} {seen['peak']:>9.1f} MB"
        )


if __name__ == "__main__":
    main()
