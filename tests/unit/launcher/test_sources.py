import pytest

from colocated_runtime.contract.job import Dataset, Evaluation, JobSpec, Model, Reward
from colocated_runtime.launcher.sources import hub_sources


def test_every_repository_once_with_the_workers_key() -> None:
    spec = JobSpec(
        model=Model(source="hf://org/policy", revision="v2"),
        dataset=Dataset(source="hf://org/data"),
        evaluation=Evaluation(dataset=Dataset(source="hf://org/data", split="test")),
        rewards=[Reward(model="hf://org/policy"), Reward(name="exact_match"), Reward(model="file:///reward")],
    )
    found = [(source.key, source.kind, source.field, source.repo) for source in hub_sources(spec)]
    assert found == [
        ("model hf://org/policy@v2", "model", "model.source", "org/policy"),
        ("dataset hf://org/data", "dataset", "dataset.source", "org/data"),
        ("model hf://org/policy", "model", "rewards[0].model", "org/policy"),
    ]


def test_no_source_names_its_field() -> None:
    with pytest.raises(ValueError, match=r"dataset\.source: 's3://bucket' is no source"):
        hub_sources(JobSpec(dataset=Dataset(source="s3://bucket")))
