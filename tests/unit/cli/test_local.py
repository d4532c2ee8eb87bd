import shutil
import socket
from pathlib import Path

import pytest

from colocated_operator.cli import local
from colocated_operator.cli.document import Document, Mistakes
from colocated_operator.cli.local import LocalRun, finished, prepare, unsuitable, wrong_variable
from colocated_runtime.contract.attempt import Attempt
from colocated_runtime.contract.job import JobSpec
from colocated_runtime.contract.outcome import Outcome
from colocated_runtime.contract.report import Checkpoint, Report, Stage


def document(config_maps: dict[str, dict[str, str]] | None = None, **spec: object) -> Document:
    return Document("job", "default", JobSpec.model_validate(spec), config_maps or {})


REWARDS = [{"function": "m:f", "configMap": "code"}]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"nodes": 2}, "nodes: 2, but this machine is one node; set nodes: 1"),
        ({"model": {"source": "pvc://models/x"}}, "model.source: pvc://models/x is a claim in a cluster"),
        ({"dataset": {"source": "file:///no/such"}}, "dataset.source: file:///no/such is not on this machine"),
        ({"dataset": {"source": "s3://bucket"}}, "dataset.source: 's3://bucket' is no source"),
        ({"rewards": [{"function": "m:f", "configMap": "code"}]}, "rewards[0].configMap: there is no ConfigMap code"),
        ({"rewards": [{"model": "pvc://models/x"}]}, "rewards[0].model: pvc://"),
        (
            {"runtime": {"env": [{"name": "SOME_TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}},
            "runtime.env[0]: SOME_TOKEN comes from the cluster; set it in this shell",
        ),
    ],
)
def test_what_a_cluster_alone_has(spec: dict[str, object], words: str) -> None:
    (line,) = unsuitable(document(**spec))
    assert line.startswith(words)


def test_rewards_of_which_python_would_import_only_one() -> None:
    rewards = [{"function": "score:f", "configMap": name} for name in ("a", "b")]
    (line,) = unsuitable(document({name: {"score.py": ""} for name in ("a", "b", "unused")}, rewards=rewards))
    assert line.startswith("rewards[].configMap: a and b hold score.py")


def mounting(path: Path, volume: dict[str, object], container: str = "colocated") -> dict[str, object]:
    mounts = [{"name": "prompts", "mountPath": str(path)}, None]
    pod = {"containers": [{"name": container, "volumeMounts": mounts}], "volumes": [{"name": "prompts", **volume}]}
    return {"runtime": {"podTemplate": {"spec": pod}}}


def test_config_maps_that_pods_find_as_files(tmp_path: Path) -> None:
    config_map = {"configMap": {"name": "prompts"}}
    (line,) = unsuitable(document({"prompts": {"a": "b"}}, **mounting(tmp_path / "no", config_map)))
    assert line == (
        f"runtime.podTemplate.spec.volumes[0].configMap: prompts is mounted at {tmp_path}/no in pods only; put its"
        " files there on this machine, or leave the volume out of this run"
    )
    assert unsuitable(document(**mounting(tmp_path, config_map))) == []
    assert unsuitable(document(**mounting(tmp_path / "no", config_map, container="logger"))) == []
    assert unsuitable(document(**mounting(tmp_path / "no", {"emptyDir": {}}))) == []


def test_what_runs_here(tmp_path: Path) -> None:
    sources = {"model": {"source": f"file://{tmp_path}"}, "dataset": {"source": "reasoning-gym://gcd"}}
    rewards = [{"function": "m:f", "configMap": "code"}]
    assert unsuitable(document({"code": {}}, rewards=rewards, **sources)) == []


def test_files_of_a_run(tmp_path: Path) -> None:
    made = prepare(document({"code": {"mine.py": "x = 1"}}), tmp_path / "run")
    assert (tmp_path / "run" / "rewards" / "code" / "mine.py").read_text() == "x = 1"
    attempt = Attempt.model_validate_json((tmp_path / "run" / "attempt.json").read_text())
    assert attempt == made.attempt
    assert (attempt.attempt, attempt.directory, attempt.storage_uri) == (1, "job-local", f"file://{tmp_path}/run")


def test_attempts_are_numbered_on(tmp_path: Path) -> None:
    prepare(document(), tmp_path).lock.close()
    (tmp_path / "job-local" / "logs" / "attempt-9").mkdir(parents=True)
    (tmp_path / "job-local" / "reports").mkdir()
    (tmp_path / "job-local" / "reports" / "attempt-10-node-0.json").touch()
    assert prepare(document(), tmp_path).attempt.attempt == 11


def complete(directory: Path, made: LocalRun, model_uri: str | None = None) -> None:
    """Leave behind what a launcher leaves that has completed the job."""
    home = directory / made.attempt.directory
    (home / "model").mkdir(parents=True)
    (home / "checkpoints" / "checkpoint-2").mkdir(parents=True)
    (home / "reports").mkdir()
    report = Report(
        name="job", uid="local", attempt=1, node=0, started=0, updated=0, stage=Stage.FINISHED,
        outcome=Outcome.COMPLETE, model_uri=f"file://{home}/model" if model_uri is None else model_uri,
        checkpoints=[Checkpoint(step=2, uri=f"file://{home}/checkpoints/checkpoint-2", time=0)],
    )  # fmt: skip
    (home / "reports" / "attempt-1-node-0.json").write_text(report.model_dump_json(by_alias=True))


def test_a_job_that_is_complete_is_found(tmp_path: Path) -> None:
    job = document(trainer={"max_steps": 3})
    assert finished(job, tmp_path / "run") is None
    made = prepare(job, tmp_path / "run")
    assert finished(job, tmp_path / "run") is None
    complete(tmp_path / "run", made)
    found = finished(job, tmp_path / "run")
    assert found is not None
    assert found[0].model_uri == f"file://{tmp_path}/run/job-local/model"
    assert found[1] == tmp_path / "run" / "job-local" / "logs" / "attempt-1"
    assert finished(document(trainer={"max_steps": 4}), tmp_path / "run") is None, "another job goes on"
    (tmp_path / "run" / "job-local" / "model").rmdir()
    assert finished(job, tmp_path / "run") is None, "its results are gone"


def test_a_copy_of_a_complete_run_shows_its_own_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = prepare(document(), tmp_path / "run")
    complete(tmp_path / "run", made)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    shutil.rmtree(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    for directory in (tmp_path / "copy", Path("copy")):
        found = finished(document(), directory)
        assert found is not None
        assert found[0].model_uri == f"file://{tmp_path}/copy/job-local/model"
        assert found[0].checkpoints[-1].uri == f"file://{tmp_path}/copy/job-local/checkpoints/checkpoint-2"
    shutil.copytree(tmp_path / "copy", tmp_path / "run")
    (tmp_path / "copy" / "job-local" / "model").rmdir()
    assert finished(document(), tmp_path / "copy") is None, "the original's model is not the copy's"


def test_a_copy_of_a_run_that_is_not_complete_goes_on_in_the_copy(tmp_path: Path) -> None:
    prepare(document(), tmp_path / "run")
    (tmp_path / "run" / "job-local" / "checkpoints" / "checkpoint-2").mkdir(parents=True)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    made = prepare(document(), tmp_path / "copy")
    assert (made.directory, made.attempt.storage_uri) == (tmp_path / "copy", f"file://{tmp_path}/copy")


@pytest.mark.parametrize(
    ("uri", "there"),
    [
        ("zorg", False),
        ("s3://bucket/model", False),
        ("pvc://claim/model", False),
        ("file:///" + "a" * 300, False),
        ("file:///nul\0", False),
        ("hf://someone/model", True),
    ],
)
def test_results_that_a_command_reports_elsewhere(tmp_path: Path, uri: str, there: bool) -> None:
    complete(tmp_path, prepare(document(), tmp_path), uri)
    assert (finished(document(), tmp_path) is not None) == there


def test_a_final_report_that_is_none(tmp_path: Path) -> None:
    made = prepare(document(), tmp_path)
    path = tmp_path / "job-local" / "reports" / "attempt-1-node-0.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xff")
    assert (made.final_report(), finished(document(), tmp_path)) == (None, None)
    path.unlink()
    path.mkdir()
    assert (made.final_report(), finished(document(), tmp_path)) == (None, None)


def test_what_others_leave_beside_the_files_of_a_reward(tmp_path: Path) -> None:
    job = document({"code": {"m.py": "a = 1\r\nb = 'ä'"}}, rewards=REWARDS)
    made = prepare(job, tmp_path)
    made.lock.close()
    complete(tmp_path, made)
    code = tmp_path / "rewards" / "code"
    (code / "__pycache__").mkdir()
    assert finished(job, tmp_path) is not None, "a directory is no file of the reward"
    (code / "m.py").write_bytes(b"\xff\xfe")
    with pytest.raises(Mistakes, match="another ConfigMap code"):
        prepare(job, tmp_path)
    (code / "m.py").unlink()
    (code / "m.py").symlink_to("nowhere")
    assert finished(job, tmp_path) is None, "what cannot be read is another reward"


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    made = prepare(document(), tmp_path)
    made.launcher_log.mkdir()
    with pytest.raises(Mistakes, match=r"--storage: .*launcher\.log cannot be written: Is a directory"):
        made.start()


def test_a_directory_of_others_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "rewards").mkdir()
    (tmp_path / "rewards" / "mine.py").write_text("precious")
    with pytest.raises(Mistakes, match="holds other files; give one that is empty, new, or an earlier run's"):
        prepare(document(), tmp_path)
    assert (tmp_path / "rewards" / "mine.py").read_text() == "precious"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (document({"code": {"m.py": "1"}}, rewards=REWARDS, trainer={"max_steps": 4}), "spec.trainer"),
        (document({"code": {"m.py": "2"}}, rewards=REWARDS), "ConfigMap code"),
        (document({"code": {"m.py": "1"}}, rewards=REWARDS, resources={"limits": {"cpu": "2"}}), None),
    ],
)
def test_checkpoints_are_not_gone_on_with_under_another_spec(
    tmp_path: Path, changed: Document, words: str | None
) -> None:
    made = prepare(document({"code": {"m.py": "1"}}, rewards=REWARDS), tmp_path)
    made.lock.close()
    prepare(changed, tmp_path).lock.close()  # nothing is lost yet
    prepare(document({"code": {"m.py": "1"}}, rewards=REWARDS), tmp_path).lock.close()
    complete(tmp_path, made)
    assert (finished(changed, tmp_path) is None) == (words is not None)
    if words is None:
        return
    with pytest.raises(Mistakes, match=f"has checkpoints of this job with another {words}; to start anew, remove it"):
        prepare(changed, tmp_path)


def test_a_job_goes_on_with_a_mended_reward_until_it_is_complete(tmp_path: Path) -> None:
    prepare(document({"code": {"m.py": "1"}}, rewards=REWARDS), tmp_path).lock.close()
    (tmp_path / "job-local" / "checkpoints" / "checkpoint-2").mkdir(parents=True)
    prepare(document({"code": {"m.py": "2"}}, rewards=REWARDS), tmp_path)
    assert (tmp_path / "rewards" / "code" / "m.py").read_text() == "2"


def test_a_variable_of_the_shell_that_is_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong_variable() == ""
    monkeypatch.setenv("MASTER_PORT", "abc")
    assert wrong_variable().startswith("MASTER_PORT, a variable of this shell: 'abc' is no port; use a number from 1")


def test_one_run_at_a_time_in_a_directory(tmp_path: Path) -> None:
    first = prepare(document(), tmp_path)
    with pytest.raises(Mistakes, match=r"another run uses .*; wait for it, or give another directory"):
        prepare(document(), tmp_path)
    process = first.start()
    stop = rf"wait for it, stop its launcher \(kill {process.pid} on {socket.gethostname()}; it saves first\), or give"
    for _ in range(2):
        with pytest.raises(Mistakes, match=stop):
            prepare(document(), tmp_path)
    process.kill()
    process.wait()
    first.lock.close()
    second = prepare(document(), tmp_path)
    with pytest.raises(Mistakes, match="wait for it, or give"):  # the number of the first is not that of the second
        prepare(document(), tmp_path)
    second.lock.close()


def test_a_lock_that_holds_something_else(tmp_path: Path) -> None:
    first = prepare(document(), tmp_path)
    (tmp_path / "lock").write_bytes(b"\xff\xfe 1")
    with pytest.raises(Mistakes, match="wait for it, or give another directory"):
        prepare(document(), tmp_path)
    first.lock.close()
    prepare(document(), tmp_path)


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Mistakes, match=r"--storage: .*/file/run cannot be written"):
        prepare(document(), tmp_path / "file" / "run")


def test_gpus_that_are_not_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(local, "GPU_FILES", (str(tmp_path / "nvidia[0-9]*"),))
    (line,) = unsuitable(document(gpusPerNode=2))
    assert line.startswith("gpusPerNode: 2, but this machine has no NVIDIA GPU, or not its driver; set device.backend:")
    assert unsuitable(document(gpusPerNode=2, device={"backend": "cpu"})) == []
    assert unsuitable(document(gpusPerNode=2, runtime={"command": ["true"]})) == []
    (tmp_path / "nvidia0").touch()
    assert unsuitable(document(gpusPerNode=2)) == []
