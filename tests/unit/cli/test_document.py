import itertools
from pathlib import Path

import pytest

from colocated_operator.cli.document import Mistakes, read

HEAD = "apiVersion: rl.colocated.dev/v1alpha1\nkind: ColocatedRLJob\nmetadata: {name: job}\n"
MAP = "kind: ConfigMap\n"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    return path


def test_the_job_among_other_objects(tmp_path: Path) -> None:
    text = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: code}\ndata: {mine.py: 'x = 1'}\n---\n"
        + HEAD.replace("name: job", "name: job, namespace: team")
        + "spec: {nodes: 2}\n---\n"
    )
    document = read(write(tmp_path, text))
    assert (document.name, document.namespace, document.spec.nodes) == ("job", "team", 2)
    assert document.config_maps == {"code": {"mine.py": "x = 1"}}


def test_the_namespace_of_the_command_line_is_that_of_a_job_without_one(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + "spec: {}")
    assert read(path).namespace == "default"
    assert read(path, namespace="team").namespace == "team"
    path = write(tmp_path, HEAD.replace("job}", "job, namespace: team}") + "spec: {}")
    assert read(path, namespace="team").namespace == "team"
    with pytest.raises(Mistakes, match=r"metadata\.namespace: team is not --namespace other; leave one of them out"):
        read(path, namespace="other")
    with pytest.raises(Mistakes, match="--namespace: 'A b' is no namespace"):
        read(write(tmp_path, HEAD + "spec: {}"), namespace="A b")


def test_the_items_of_a_list_are_its_objects(tmp_path: Path) -> None:
    text = """
kind: List
apiVersion: v1
items:
- {apiVersion: rl.colocated.dev/v1alpha1, kind: ColocatedRLJob, metadata: {name: job}, spec: {nodes: 2}, status: {}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: code}, data: {mine.py: 'x = 1'}}
"""
    document = read(write(tmp_path, text))
    assert (document.name, document.spec.nodes, document.config_maps) == ("job", 2, {"code": {"mine.py": "x = 1"}})
    assert read(write(tmp_path, text.replace("kind: List", "kind: ColocatedRLJobList"))).name == "job"
    with pytest.raises(Mistakes, match="holds int where a Kubernetes object should be"):
        read(write(tmp_path, "kind: List\nitems: [1]"))
    with pytest.raises(Mistakes, match="holds no ColocatedRLJob; there are: no objects"):
        read(write(tmp_path, "kind: List\nitems: []"))


def test_one_of_several(tmp_path: Path) -> None:
    path = write(tmp_path, f"{HEAD}spec: {{}}\n---\n{HEAD.replace('job}', 'other}')}spec: {{nodes: 3}}\n")
    assert read(path, "other").spec.nodes == 3
    with pytest.raises(Mistakes, match="choose one by --name: job, other"):
        read(path)
    with pytest.raises(Mistakes, match="named third; there are: job, other"):
        read(path, "third")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [", "is no YAML: while parsing a flow node"),
        ("", "holds no ColocatedRLJob; there are: no objects"),
        ("kind: Pod", "holds no ColocatedRLJob; there are: Pod"),
        ("- 1", "holds list where a Kubernetes object should be"),
        (HEAD.replace("name: job", "name: Job_1") + "spec: {}", "metadata.name: 'Job_1' is no name"),
        (HEAD.replace("name: job", f"name: {'a' * 41}") + "spec: {}", "is no name; use at most 40"),
        (HEAD.replace("v1alpha1", "v1") + "spec: {}", "apiVersion: 'rl.colocated.dev/v1' is not rl.colocated.dev/"),
        (HEAD + "specs: {}", "specs: no such field; did you mean spec?"),
        (HEAD, "spec: input should be a valid dictionary"),
        (HEAD + "spec: {gpuPerNode: 8}", "spec.gpuPerNode: no such field; did you mean gpusPerNode?"),
        (HEAD + "spec: {gpus_per_node: 8}", "spec.gpus_per_node: no such field; did you mean gpusPerNode?"),
        (HEAD + "spec: {memory: {sleeplevel: 1}}", "spec.memory.sleeplevel: no such field; did you mean sleepLevel?"),
        (HEAD + "spec: {rewards: [{names: x}]}", "spec.rewards[0].names: no such field; did you mean name?"),
        (HEAD + "spec: {evaluation: {dataset: {sauce: x}}}", "spec.evaluation.dataset.source: missing"),
        (HEAD + "spec: {lora: {zzz: 1}}", "spec.lora.zzz: no such field; there are: r, lora"),
        (HEAD + "spec: {nodes: many}", "spec.nodes: input should be a valid integer"),
        (HEAD + "spec: {nodes: 0}", "spec.nodes: input should be greater than or equal to 1 (it is 0)"),
        (
            HEAD + "spec: {lora: {target_modules: all-linear}}",
            "spec.lora.target_modules: 'all-linear' is text, and a list is needed; write [all-linear]",
        ),
        (HEAD + "spec: {algorithm: ppo}", "spec.algorithm: input should be 'grpo' or 'rloo' (it is 'ppo')"),
        (HEAD + "spec: {model: {}}", "spec.model.source: missing"),
        (HEAD + "spec: {resources: {limits: {memory: 16 gB}}}", "'16 gB' is no quantity; write 16Gi"),
        (HEAD + "spec: {device: {memory: 139GB}}", "spec.device.memory: '139GB' is no quantity; write 139Gi"),
        (
            HEAD + "spec: {device: {memory: much}}",
            "spec.device.memory: 'much' is no quantity; write e.g. 16Gi, 500m or",
        ),
        (HEAD + "1: x", "1: no such field"),
        (HEAD + "spec: {nodes: 1, nodes: 2}", "is no YAML: nodes is there twice"),
        (HEAD + "spec: {nodes: 2001-99-99}", "is no YAML: month must be in 1..12"),
        (HEAD + f"spec: {{nodes: {'9' * 5000}}}", "is no YAML: Exceeds the limit"),
        (HEAD + f"spec: {'[' * 3000}", "is no YAML: "),
        (HEAD + "spec: {suspend: !!bool x}", "is no YAML: a value is not what its !! tag says"),
        (HEAD + "spec: {nodes: !!int ''}", "is no YAML: a value is not what its !! tag says"),
        (HEAD + "spec: {nodes: !!timestamp x}", "is no YAML: a value is not what its !! tag says"),
        (HEAD.replace("job}", "job, namespace: [x]}") + "spec: {}", "metadata.namespace: ['x'] is no namespace"),
        (MAP + "metadata: {name: ../up}\n---\n" + HEAD + "spec: {}", "ConfigMap metadata.name: '../up' is no name"),
        (MAP + "metadata: {name: a}\ndata: {../up.py: x}\n---\n" + HEAD, "'../up.py' is no key; use letters"),
        (MAP + "metadata: {name: a}\ndata: {/up.py: x}\n---\n" + HEAD, "'/up.py' is no key"),
        (MAP + "metadata: {name: a}\ndata: {1: x}\n---\n" + HEAD, "1 is no key"),
        (MAP + "metadata: {name: a}\ndata: [x]\n---\n" + HEAD, "data is list; give file names and their text"),
        (MAP + "metadata: {name: a}\ndata: {x.py: 1}\n---\n" + HEAD, "x.py is int; its value has to be text"),
        (MAP + "metadata: {name: a}\nbinaryData: {x.py: eA==}\n---\n" + HEAD, "binaryData is not read here"),
        (
            HEAD.replace("job}", "job, labels: foo}") + "spec: {}",
            "metadata.labels: 'foo' is str; give keys and their text",
        ),
        (
            HEAD.replace("job}", "job, labels: []}") + "spec: {}",
            "metadata.labels: [] is list; give keys and their text",
        ),
        (HEAD.replace("job}", "job, labels: {a: 1}}") + "spec: {}", "metadata.labels: 'a': 1 is no text under a text"),
        (HEAD.replace("job}", "job, labels: {1: a}}") + "spec: {}", "metadata.labels: 1: 'a' is no text under a text"),
        (HEAD.replace("job}", "job, annotations: x}") + "spec: {}", "metadata.annotations: 'x' is str; give keys"),
        (HEAD + "spec: {}\n---\n" + HEAD + "spec: {}", "several ColocatedRLJobs of one name: job, job; rename"),
    ],
)
def test_mistakes_are_one_line_with_field_and_way_out(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(Mistakes) as caught:
        read(write(tmp_path, text))
    assert words in caught.value.lines[0]
    assert "\n" not in caught.value.lines[0]


OPTION = HEAD + "spec: {trainer: {model_init_kwargs: %s}}"
LEVELS = [(new, ", ".join([f"*{old}"] * 10)) for old, new in itertools.pairwise("abcdefghi")]
BOMB = OPTION % f"[&a [1], {', '.join(f'&{name} [{ten}]' for name, ten in LEVELS)}]"
MERGED = OPTION % f"[&a {{x: 1}}, {', '.join(f'&{name} {{<<: [{ten}]}}' for name, ten in LEVELS)}]"
LONG = OPTION % ("{a: &a " + "x" * 100_000 + ", b: [" + "*a, " * 100 + "]}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, "line 4: it has more than 10,000,000 letters with its anchors (&) written out; make it smaller"),
        (LONG, "line 4: it has more than 10,000,000 letters"),
        (MERGED, "line 4: it has more than 10,000,000 letters"),
        (OPTION % "&a {b: *a}", "line 4: an anchor (&) is used within what it stands for, which has no end; write it"),
        (OPTION % "&a [[*a]]", "line 4: an anchor (&) is used within"),
        (OPTION % "&a {<<: *a}", "line 4: an anchor (&) is used within"),
        (OPTION % ("[" * 98 + "]" * 98), "line 1: more than 100 lists and objects are in each other; make it flatter"),
        (OPTION % ("[" * 250 + "]" * 250), "line 4: more than 100 lists and objects are in each other"),
        (
            OPTION % ("[&a0 [], " + ", ".join(f"&a{n + 1} [*a{n}]" for n in range(100)) + "]"),
            "line 4: more than 100 lists and objects are in each other",
        ),
        (OPTION % '{a: "x\\ud800"}', "line 4: \\ud800 is half a letter, which UTF-8 cannot hold; write the letter"),
        (OPTION % '{"\\udfff": 1}', "line 4: \\udfff is half a letter"),
        (OPTION % "{a: .nan}", "line 4: .nan is no number that JSON can hold; give a finite one"),
        (OPTION % "{a: -.inf}", "line 4: -.inf is no number"),
        (OPTION % "{a: 1e999}", "line 4: 1e999 is no number"),
        (OPTION % "{a: !!binary /9j/}", "line 4: !!binary is not read here; give text"),
        (MAP + 'metadata: {name: a}\ndata: {a.py: "\\ud800"}\n---\n' + HEAD, "line 3: \\ud800 is half a letter"),
    ],
)
def test_yaml_of_which_no_job_can_be_made(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(Mistakes) as caught:
        read(write(tmp_path, text))
    (line,) = caught.value.lines
    assert line.startswith(f"{tmp_path}/job.yaml: {words}")


def test_anchors_and_depth_within_bounds(tmp_path: Path) -> None:
    text = OPTION % ("{a: &a {x: 1}, b: {<<: *a, y: *a}, c: " + "[" * 90 + "]" * 90 + "}")
    options = read(write(tmp_path, text)).spec.trainer["model_init_kwargs"]
    assert options["b"] == {"x": 1, "y": {"x": 1}}


@pytest.mark.parametrize("text", ["1e-6", "1.0e-6", "1E-06", "0.000001"])
def test_numbers_as_kubectl_reads_them(tmp_path: Path, text: str) -> None:
    document = read(write(tmp_path, HEAD.replace("job}", "job, namespace: }") + f"spec: {{trainer: {{a: {text}}}}}"))
    assert document.spec.trainer == {"a": 1e-6}
    assert document.namespace == "default"


def test_all_mistakes_of_a_spec_at_once(tmp_path: Path) -> None:
    with pytest.raises(Mistakes) as caught:
        read(write(tmp_path, HEAD + "spec: {nodes: 0, x: 1}"))
    assert len(caught.value.lines) == 2


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(Mistakes, match=r"nowhere\.yaml: cannot be read: No such file"):
        read(tmp_path / "nowhere.yaml")
