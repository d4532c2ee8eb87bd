"""Every example is a job that can run, and its reward functions import and score."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.refusals import refusals

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))


def objects(path: Path, kind: str) -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all(path.read_text()) if found["kind"] == kind]


def test_there_are_examples() -> None:
    assert "smollm2-arithmetic" in [path.stem for path in EXAMPLES]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_can_run(path: Path) -> None:
    (job,) = objects(path, "ColocatedRLJob")
    assert refusals(JobSpec.model_validate(job["spec"])) == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_config_maps_of_functions_are_in_the_same_file(path: Path) -> None:
    (job,) = objects(path, "ColocatedRLJob")
    named = {reward["configMap"] for reward in job["spec"]["rewards"] if "configMap" in reward}
    assert {found["metadata"]["name"] for found in objects(path, "ConfigMap")} == named


def test_gsm8k_reward_scores_the_last_number() -> None:
    (path,) = (path for path in EXAMPLES if "gsm8k" in path.stem)
    (config_map,) = objects(path, "ConfigMap")
    module: dict[str, Any] = {}
    exec(config_map["data"]["gsm8k.py"], module)
    completions = [[{"role": "assistant", "content": "4 * 300 = 1,200. So 1,200 dollars."}], "I do not know."]
    assert module["correct"](["", ""], completions, ["… #### 1200", "… #### 3"]) == [1.0, 0.0]
