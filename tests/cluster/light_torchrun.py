"""In place of torchrun where a test needs many pods at once and no torch: starts one rank, and ends as it ends."""

import os
import signal
import subprocess
import sys


def main() -> int:
    options, command = sys.argv[: sys.argv.index("--no-python")], sys.argv[sys.argv.index("--no-python") + 1 :]
    given = dict(zip(options[1::2], options[2::2], strict=False))
    ranks = {"RANK": given["--node-rank"], "LOCAL_RANK": "0", "WORLD_SIZE": given["--nnodes"]}
    rank = subprocess.Popen(command, env=os.environ | ranks)
    signal.signal(signal.SIGTERM, lambda *_: rank.terminate())
    return 1 if rank.wait() else 0


if __name__ == "__main__":
    sys.exit(main())
