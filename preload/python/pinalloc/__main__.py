# SPDX-License-Identifier: BSD-2-Clause
"""The command pinalloc(1) of this installation; or another of its commands, by whose name this was called."""

import os
import sys

from pinalloc import _command


def main() -> None:
    name = os.path.basename(sys.argv[0])
    try:
        command = _command("pinalloc" if name == "__main__.py" else name)
        os.execv(command, [command, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"python3 -m pinalloc: {error.strerror} {error.filename}")


if __name__ == "__main__":
    main()
