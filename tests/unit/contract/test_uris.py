import pytest

from colocated_runtime.contract.uris import Source, parse


@pytest.mark.parametrize(
    ("uri", "source"),
    [
        ("hf://org/name", Source("hf", "org/name")),
        ("pvc://claim/a/b/", Source("pvc", "claim", "a/b")),
        ("pvc://claim", Source("pvc", "claim")),
        ("pvc://claim/x#1", Source("pvc", "claim", "x#1")),
        ("file:///models/run#3?b", Source("file", path="/models/run#3?b")),
        ("reasoning-gym://gcd?size=3&seed=1", Source("reasoning-gym", "gcd", query={"size": "3", "seed": "1"})),
    ],
)
def test_nothing_of_a_source_is_cut_off(uri: str, source: Source) -> None:
    assert parse(uri) == source


@pytest.mark.parametrize(
    "uri",
    ["hf://a/b?revision=c", "hf://a/b#c", "hf://[x", "pvc://claim/../x", "pvc://", "file://host/x", "file://x",
     "s3://b/x", "x", "", "reasoning-gym://gcd/x"],
)  # fmt: skip
def test_what_is_none_is_told_the_accepted_forms(uri: str) -> None:
    with pytest.raises(ValueError, match="is no source: use hf://ORGANISATION/NAME, pvc://CLAIM/PATH, file:///ABS"):
        parse(uri)
