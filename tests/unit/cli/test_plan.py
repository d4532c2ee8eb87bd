"""`colocated plan` and `colocated render` as a user types them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result
from tests.unit.contract.bad_jobs import GOOD, changed
from tests.unit.operator.cluster import START
from typer.testing import CliRunner

from colocated_operator.cli import app
from colocated_operator.decide import CreateAttempt, decide
from colocated_operator.desired import objects
from colocated_operator.observe import Observation, rl_job
from colocated_operator.settings import Settings
from colocated_runtime.contract.plan import Plan

SMALL = {"model_type": "qwen2", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 1000}  # fmt: skip
HEADS = {"gpusPerNode": 4, "parallelism.tensorParallel": 4}
GPU = {"gpusPerNode": 1, "device.memory": "80Gi"}


def job(directory: Path, changes: dict[str, Any] | None = None, labels: dict[str, str] | None = None) -> Path:
    """A file with a job. JSON is YAML."""
    path = directory / "job.yaml"
    head = {"apiVersion": "rl.colocated.dev/v1alpha1", "kind": "ColocatedRLJob"}
    metadata = {"name": "job", "namespace": "ns", "labels": labels or {}}
    path.write_text(json.dumps(head | {"metadata": metadata, "spec": changed(GOOD, changes or {})}))
    return path


def colocated(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "120"})


# plan


def test_a_job_that_fits_is_exit_code_0_and_a_table(tmp_path: Path) -> None:
    done = colocated("plan", job(tmp_path, GPU))
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("job: fits\n")
    assert "trainer weights" in done.stdout


def test_a_job_that_does_not_fit_is_exit_code_1_and_says_why(tmp_path: Path) -> None:
    done = colocated("plan", job(tmp_path, GPU | {"device.memory": "2Gi"}))
    assert done.exit_code == 1
    assert done.stdout.startswith("job: does not fit\n")
    assert "missing" in done.stdout


@pytest.mark.parametrize(("option", "parse"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_the_plan_itself(tmp_path: Path, option: str, parse: Any) -> None:
    done = colocated("plan", job(tmp_path, GPU), "-o", option)
    made = Plan.model_validate(parse(done.stdout))
    assert made.fits
    assert made.device_bytes == 80 * 2**30


def test_without_a_device_well_known_ones_are_compared(tmp_path: Path) -> None:
    large = {"gpusPerNode": 1, "model.source": "hf://Qwen/Qwen2.5-7B", "lora": {}}
    done = colocated("plan", job(tmp_path, large))
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("job: names no device")
    verdicts = {line.split()[0]: " ".join(line.split()[2:]) for line in done.stdout.splitlines() if "NVIDIA-" in line}
    assert verdicts["NVIDIA-L4"].endswith("does not fit")
    assert verdicts["NVIDIA-H200"].endswith(" fits")
    smallest = next(product for product, verdict in verdicts.items() if not verdict.endswith("not fit"))
    assert f": colocated plan {tmp_path}/job.yaml --device-product {smallest}\n" in done.stdout
    assert colocated("plan", job(tmp_path, large), "--device-product", smallest).exit_code == 0
    (least,) = re.findall(r"needs GPUs of at least (\d+) GiB", done.stdout)
    for size, code in ((int(least), 0), (int(least) - 1, 1)):
        assert colocated("plan", job(tmp_path, large), "--device-memory", f"{size}Gi").exit_code == code


def test_where_no_well_known_device_is_large_enough_the_largest_says_why(tmp_path: Path) -> None:
    huge = {"gpusPerNode": 1, "model.source": "hf://Qwen/Qwen2.5-72B"}
    done = colocated("plan", job(tmp_path, huge))
    assert done.exit_code == 1
    assert "on NVIDIA-B200: " in done.stdout
    assert "missing" in done.stdout


def test_a_job_on_amd_is_compared_on_amd(tmp_path: Path) -> None:
    amd = {"gpusPerNode": 1, "resourceName": "amd.com/gpu", "runtime.image": "example.org/rocm:1"}
    shown = colocated("plan", job(tmp_path, amd)).stdout
    assert "AMD_Instinct_MI300X_OAM" in shown
    assert "NVIDIA" not in shown


def test_the_picture_is_written_beside_the_table(tmp_path: Path) -> None:
    done = colocated("plan", job(tmp_path, GPU), "--picture", tmp_path / "out.svg")
    assert done.exit_code == 0
    assert (tmp_path / "out.svg").read_text().startswith("<svg ")
    failed = colocated("plan", job(tmp_path, GPU), "--picture", tmp_path / "no" / "out.svg")
    assert failed.exit_code == 2
    assert "--picture" in failed.stderr


def test_options_stand_in_for_the_device(tmp_path: Path) -> None:
    path = job(tmp_path, {"gpusPerNode": 1})
    by_memory = Plan.model_validate_json(colocated("plan", path, "-o", "json", "--device-memory", "24Gi").stdout)
    assert by_memory.device_bytes == 24 * 2**30
    by_product = colocated("plan", path, "-o", "json", "--device-product", "NVIDIA-H100-80GB-HBM3")
    assert 78 * 2**30 < Plan.model_validate_json(by_product.stdout).device_bytes < 80 * 2**30


def test_a_product_on_the_command_line_replaces_the_jobs_memory(tmp_path: Path) -> None:
    done = colocated("plan", job(tmp_path, GPU), "-o", "json", "--device-product", "NVIDIA-H200")
    assert Plan.model_validate_json(done.stdout).device_bytes > 130 * 2**30


def test_config_json_stands_in_for_a_model_that_nobody_knows(tmp_path: Path) -> None:
    unknown = GPU | {"model.source": "hf://nobody/knows"}
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    assert colocated("plan", job(tmp_path, unknown)).exit_code == 2
    assert colocated("plan", job(tmp_path, unknown), "--config", tmp_path / "config.json").exit_code == 0
    divided = colocated("plan", job(tmp_path, unknown | HEADS | {"gpusPerNode": 8, "parallelism.tensorParallel": 8}),
                        "--config", tmp_path / "config.json")  # fmt: skip
    assert "tensorParallel: 8 does not divide the model's 4 attention heads" in divided.stderr
    local = GPU | {"model.source": f"file://{tmp_path}"}
    assert colocated("plan", job(tmp_path, local)).exit_code == 0


def test_a_config_json_that_cannot_be_planned(tmp_path: Path) -> None:
    path, config = job(tmp_path, GPU | {"runtime.image": "i", "model.source": f"file://{tmp_path}"}), tmp_path
    (config / "config.json").write_text(json.dumps({**SMALL, "quantization_config": {"quant_method": "gptq"}}))
    for command in ("plan", "render"):
        done = colocated(command, path)
        assert done.exit_code == 2
        assert f"spec.model.source: file://{tmp_path} has quantised weights" in done.stderr
    (config / "config.json").write_text(json.dumps({**SMALL, "tie_word_embeddings": "false"}))
    assert "config.json: tie_word_embeddings: 'false' is neither true nor false" in colocated("plan", path).stderr
    (config / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_embd": 768}))
    assert "hidden_size is missing" in colocated("plan", path).stderr
    assert colocated("render", path).exit_code == 0  # what cannot be planned may well run
    for content, words in (("{", "is no JSON: "), ('{"max_position_embeddings": 0}', "0 is no number of tokens; ")):
        (config / "config.json").write_text(content)
        for command in ("plan", "render", "run"):
            done = colocated(command, path)
            assert done.exit_code == 2
            assert done.stderr.startswith(f"error: {config}/config.json: ")
            assert words in done.stderr


@pytest.mark.parametrize(
    ("changes", "options", "words"),
    [
        ({"gpusPerNode": 1}, ("-o", "json"), "spec.device: not said; give --device-memory 80Gi or --device-product"),
        ({"gpusPerNode": 1}, ("--picture", "x.svg"), "spec.device: not said; give --device-memory 80Gi"),
        ({"gpusPerNode": 1, "device.product": "Voodoo2"}, (), "Voodoo2 is no product whose memory is known here; give"),
        ({"gpusPerNode": 1, "device.product": "GRID-A100D-20C"}, (), "is no product whose memory is known here; give"),
        (GPU, ("--device-memory", "80"), "error: --device-memory: 80 is 80 bytes, too few to mean it; write 80Gi"),
        (GPU, ("--device-memory", ""), "--device-memory: '' is no quantity"),
        (GPU, ("--device-product", "H100"), "error: --device-product: H100 is not what nodes are labelled with"),
        (GPU, ("--device-product", "MI300X"), "error: --device-product: MI300X is no product of nvidia.com"),
        (GPU | {"device.memory": 80}, (), "spec.device.memory: 80 is 80 bytes, too few to mean it; write 80Gi"),
        (GPU, ("--device-memory", "much"), "--device-memory: 'much' is no quantity"),
        (GPU | {"model.source": "hf://a/b"}, (), "give its config.json by --config, or the sizes as spec.model.shape"),
        (GPU, ("--config", "/nowhere"), "/nowhere: cannot be read"),
        ({}, (), "on CPUs there is no GPU memory to plan"),
        (GPU | {"runtime.command": ["true"]}, (), "a program of its own"),
        (GPU | {"trainer.num_generations": 7}, (), "trainer.num_generations: 7"),
        (GPU | {"gpuPerNode": 1}, (), "did you mean gpusPerNode?"),
        (GPU | HEADS, (), "spec.parallelism.tensorParallel: 4 does not divide the model's 14 attention heads"),
        (HEADS | {"gpusPerNode": None, "processesPerNode": 4}, (), "4 does not divide the model's 14 attention heads"),
        (GPU | {"trainer.max_completion_length": 32_768}, (), "spec.trainer.max_completion_length: 32768 leaves no"),
    ],
)
def test_a_mistake_is_exit_code_2_and_one_message(
    tmp_path: Path, changes: dict[str, Any], options: tuple[str, ...], words: str
) -> None:
    done = colocated("plan", job(tmp_path, changes), *options)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert words in done.stderr
    assert done.stdout == ""


SLIPS = [({"trainer.optim": "foo"}, "spec.trainer.optim: 'foo' is none of adamw_torch, "),
         ({"trainer.num_generation": 8}, "spec.trainer.num_generation: no option of TRL's GRPOConfig; did you mean"),
         ({"trainer.lr_scheduler_type": "cos"}, "spec.trainer.lr_scheduler_type: 'cos' is none of linear, "),
         ({"trainer.learning_rate": "1e-6"}, "spec.trainer.learning_rate: '1e-6' is not a number")]  # fmt: skip


@pytest.mark.parametrize("command", ["plan", "render", "run"])
@pytest.mark.parametrize(("changes", "words"), SLIPS)
def test_a_slip_in_a_trainers_option_is_refused_at_once(
    tmp_path: Path, changes: dict[str, Any], words: str, command: str
) -> None:
    done = colocated(command, job(tmp_path, GPU | changes))
    assert done.exit_code == 2
    assert words in done.stderr


def test_an_option_that_another_image_may_have_is_warned_of(tmp_path: Path) -> None:
    path = job(tmp_path, GPU | {"trainer.num_generation": 8, "runtime.image": "example.org/newer:1"})
    for command in ("plan", "render"):
        done = colocated(command, path)
        assert done.exit_code == 0
        assert done.stderr.startswith(f"warning: {path}: spec.trainer.num_generation: no option of TRL's GRPOConfig;")
    here = colocated("run", path)  # the image is not used
    assert here.exit_code == 2
    assert "error: " in here.stderr
    assert "spec.trainer.num_generation: no option of TRL's GRPOConfig; did you mean" in here.stderr


def test_a_device_as_the_driver_names_it(tmp_path: Path) -> None:
    done = colocated("plan", job(tmp_path, {"gpusPerNode": 1}), "--device-product", "NVIDIA H100 80GB HBM3")
    assert (done.exit_code, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("options", "begin", "end"),
    [((), "qwen2-5-7b-gsm8k: fits", ""), (("--device-memory", "40Gi"), "Train: ", "adapters instead of all weights.")],
)
def test_the_readme_shows_what_is_printed(options: tuple[str, ...], begin: str, end: str) -> None:
    root = Path(__file__).parents[3]
    printed = colocated("plan", root / "examples" / "qwen2.5-7b-gsm8k.yaml", *options).stdout
    (block,) = (part for part in (root / "README.md").read_text().split("```\n") if part.startswith(begin))
    assert " ".join(block.split()) in " ".join(printed.split())
    assert block.rstrip().endswith(end)


# render


def rendered(*arguments: object) -> list[dict[str, Any]]:
    done = colocated("render", *arguments)
    assert (done.exit_code, done.stderr) == (0, "")
    return list(yaml.safe_load_all(done.stdout))


def test_image_that_is_no_reference(tmp_path: Path) -> None:
    done = colocated("render", job(tmp_path), "--image", "a b")
    assert done.exit_code == 2
    assert "--image: 'a b' is no reference" in done.output


def test_what_is_rendered_is_what_the_operator_creates(tmp_path: Path) -> None:
    path = job(tmp_path, GPU | {"checkpoint.storage": {"volumeClaimTemplate": {}}}, {"kueue.x-k8s.io/queue-name": "q"})
    shown = rendered(path, "--image", "registry/runtime:1")
    body = yaml.safe_load(path.read_text())
    body["metadata"] |= {"uid": shown[0]["metadata"]["ownerReferences"][0]["uid"], "generation": 1}
    (create,) = decide(Observation(rl_job(body)), START, Settings("registry/runtime:1", namespaces=())).actions
    assert isinstance(create, CreateAttempt)
    wanted = [make(create.plan) for make in (objects.config_map, objects.service, objects.volume_claim, objects.job)]
    assert shown == wanted
    assert shown[-1]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q"


@pytest.mark.parametrize("option", ["-n", "--namespace"])
def test_rendered_into_a_namespace(tmp_path: Path, option: str) -> None:
    path = job(tmp_path)
    path.write_text(path.read_text().replace('"namespace": "ns", ', ""))
    bodies = rendered(path, "--image", "i", option, "team")
    assert {body["metadata"]["namespace"] for body in bodies} == {"team"}
    assert "job-00000.team.svc" in str(bodies) or "team" in str(bodies[0]["data"])


def test_a_job_without_a_claim_has_none(tmp_path: Path) -> None:
    assert [body["kind"] for body in rendered(job(tmp_path), "--image", "i")] == ["ConfigMap", "Service", "Job"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"runtime.image": None}, "spec.runtime.image: not said; give the operator's by --image"),
        (
            {"runtime.image": "i", "runtime.podTemplate": {"metadata": {"labels": [1]}}},
            "podTemplate.metadata.labels: [1]",
        ),
        ({"runtime.image": "i", "trainer.num_generations": 7}, "trainer.num_generations: 7"),
        (GPU | {"runtime.image": "i", "device.memory": "2Gi"}, "nothing would be created: "),
        (GPU | HEADS | {"runtime.image": "i"}, "spec.parallelism.tensorParallel: 4 does not divide"),
    ],
)
def test_what_cannot_be_rendered(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    done = colocated("render", job(tmp_path, changes))
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert words in done.stderr


# both, and the others


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "FILE", "--name", ""),
        ("plan", "FILE", "--device-product", ""),
        ("plan", "FILE", "--device-product", " "),
        ("render", "FILE", "--name", ""),
        ("render", "FILE", "--image", ""),
        ("render", "FILE", "--namespace", ""),
        ("run", "FILE", "--name", ""),
        ("watch", "job", "--namespace", ""),
    ],
)
def test_an_option_that_is_empty(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    path = job(tmp_path, GPU)
    done = colocated(*(path if argument == "FILE" else argument for argument in arguments))
    assert done.exit_code == 2
    assert done.stderr == f"error: {arguments[2]}: is empty; give a value, or leave the option out\n"


def test_a_name_to_watch_that_is_empty() -> None:
    done = colocated("watch", "")
    assert (done.exit_code, done.stderr) == (2, "error: NAME: is empty; give that of a ColocatedRLJob\n")
