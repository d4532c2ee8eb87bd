"""A log that cannot be written ends nothing."""

import faulthandler
from pathlib import Path

import pytest

from colocated_runtime.worker.output import unfailing


def test_a_full_volume_is_passed_over() -> None:
    with open("/dev/full", "w") as full:
        log = unfailing(full)
        print("lost", file=log, flush=True)
        with pytest.raises(OSError, match="No space left"):
            print("lost", file=full, flush=True)
        full.close = lambda: None


def test_what_fits_is_written_at_once(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file:
        log = unfailing(file)
        print("one\ntwo \udcff", file=log)
        assert (tmp_path / "log").read_text() == "one\ntwo \\udcff\n"
        faulthandler.dump_traceback(log)
        assert "test_what_fits" in (tmp_path / "log").read_text()
