"""tests/run itself: what its parts end with is what it ends with."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = {
    "tools/environment.sh": 'part() { shift; "$@"; }\nvenv() { echo "$PWD"; }\ncache=$PWD/cache\n',
    "tools/packages.sh": "need() { :; }\n",
    "localcluster/up": "#!/bin/sh\necho $PWD/state/admin.kubeconfig\n",
    "localcluster/build": "#!/bin/sh\necho $PWD\n",
    "localcluster/images": "#!/bin/sh\nsleep 0.2\n",
    **dict.fromkeys(["bin/ruff", "bin/mypy", "bin/lint-imports"], "#!/bin/sh\n"),
}


def run(root: Path, *, image: str, python: str) -> subprocess.CompletedProcess[str]:
    shutil.copytree(ROOT / "tests", root / "tests", ignore=lambda _, names: set(names) - {"run"})
    for name, text in {**TOOLS, "localcluster/image": image, "bin/python": python}.items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return subprocess.run([root / "tests/run"], capture_output=True, text=True, timeout=30)


@pytest.mark.parametrize("image", ["#!/bin/sh\n", "#!/bin/sh\nsleep 100\n"])
@pytest.mark.parametrize("code", [0, 1])
def test_ends_as_its_parts_whether_images_are_built_or_not(tmp_path: Path, image: str, code: int) -> None:
    assert run(tmp_path, image=image, python=f"#!/bin/sh\nexit {code}\n").returncode == code
