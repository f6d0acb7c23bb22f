"""leash.py PROGRAM ARGUMENTS...: runs a program until our standard input closes, then ends it.

Whoever started us holds the other end of that pipe, so the program ends with them, even if they are killed.
"""

import subprocess
import sys
import threading


def main() -> int:
    program = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)

    def hold() -> None:
        sys.stdin.buffer.read()
        program.terminate()
        try:
            program.wait(timeout=5)
        except subprocess.TimeoutExpired:
            program.kill()

    threading.Thread(target=hold, daemon=True).start()
    return program.wait()


if __name__ == "__main__":
    sys.exit(main())
