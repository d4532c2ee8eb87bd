"""Faults of the engine's weights in their short form; `python benchmarks/stale_weights.py` is the long one."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

FILE = Path(__file__).parents[3] / "benchmarks" / "stale_weights.py"
BLIND = "from colocated_runtime.worker.engine import Engine\nEngine._make_sure = lambda self: None\n"


@pytest.fixture(params=["", BLIND], ids=["as it is", "without the checks before a rollout"])
def blind(request):
    return request.param


def test_all_faults_are_found_and_good_syncs_raise_no_alarm(nursery, tmp_path, blind):
    script = tmp_path / "trials.py"
    arguments = [str(FILE), str(tmp_path), "--good", "3", "--faults", "15"]
    start = f"import runpy, sys\nsys.argv = {arguments}\nrunpy.run_path(sys.argv[0], run_name='__main__')\n"
    script.write_text(blind + start)
    log = tmp_path / "log"
    code = nursery.run(str(script), 1, {}, log)
    assert (tmp_path / "result.json").exists(), log.read_text()[-3000:]
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["false alarms"] == 0
    assert sum(sum(by.values()) for by in result["found"].values()) == 15
    assert bool(result["missed"]) is bool(blind) is bool(code)
