"""The worker on a volume that is, as STORAGE says, full, read-only or gone from step 1 until step 3, or slow."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from colocated_runtime.worker import environment

environment.prepare(os.environ, "cpu")

from colocated_runtime.worker import checkpoints, trainers  # noqa: E402
from colocated_runtime.worker.__main__ import main  # noqa: E402

HOW = os.environ["STORAGE"]
VOLUME = Path(os.environ["COLOCATED_STORAGE_DIR"])
remember, fsync = trainers.Colocated.remember, checkpoints.fsync


def remount(mode):
    subprocess.run(["mount", "-o", f"remount,{mode}", str(VOLUME)], check=True)


def job_directory(gone):
    present = next(path for path in VOLUME.iterdir() if path.name.startswith("tiny-"))
    present.rename(VOLUME / f"tiny-{'gone' if gone else '01234'}")


def spoil():
    if HOW == "read-only":
        remount("ro")
    elif HOW == "gone":
        job_directory(gone=True)
    else:
        with suppress(OSError), (VOLUME / "ballast").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))


def mend():
    if HOW == "read-only":
        remount("rw")
    elif HOW == "gone":
        job_directory(gone=False)
    else:
        (VOLUME / "ballast").unlink()


def change(self):
    remember(self)
    if self.accelerator.process_index:
        return  # the volume is everybody's
    if self.state.global_step == 1:
        self._phases._trace._close()  # a file that is open for writing keeps a volume from being remounted
        spoil()
    if self.state.global_step == 3:
        mend()


def slow(path):
    time.sleep(0.3)
    fsync(path)


if HOW == "slow":
    checkpoints.fsync = slow
else:
    trainers.Colocated.remember = change
sys.exit(main())
