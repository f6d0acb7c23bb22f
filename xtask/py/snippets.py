"""snippets.py FILE...: runs the ```python blocks of Markdown files, as a reader would paste them.

The blocks of a file run one after another in a process of their own, in an empty folder. The first that fails is shown with its
file and line.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path


def blocks(text: str) -> list[tuple[int, str]]:
    """Line number and code of each block."""
    found: list[tuple[int, list[str]]] = []
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() == "```python":
            inside = True
            found.append((number + 1, []))
        elif line.strip() == "```":
            inside = False
        elif inside:
            found[-1][1].append(line)
    return [(number, "\n".join(lines)) for number, lines in found]


def main() -> int:
    passed = failed = 0
    for name in sys.argv[1:]:
        path = Path(name).resolve()
        found = blocks(path.read_text(encoding="utf-8"))
        # Line numbers as in the file, so that a traceback points there.
        code = ""
        for line, block in found:
            code += "\n" * (line - 1 - code.count("\n")) + block + "\n"
        program = f"exec(compile({code!r}, {name!r}, 'exec'), {{'__name__': '__main__'}})"
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-c", program], cwd=folder, stdout=subprocess.DEVNULL)
        good = done.returncode == 0 and bool(found)
        print(f"{name}: {len(found)} blocks {'ran' if good else 'FAILED' if found else 'found, expected some'}", flush=True)
        passed, failed = passed + good, failed + (not good)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
