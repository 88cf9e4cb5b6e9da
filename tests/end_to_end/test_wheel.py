"""The installed product, away from its checkout."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(300)
def test_a_wheel_carries_playbooks_patches_and_the_agent(tmp_path: Path) -> None:
    """A wheel, unpacked in an empty directory, makes a lab, finds the campaign's playbook, and plans it there."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    wheel = next(tmp_path.glob("orchestrator-*.whl"))
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    code = (
        "import orchestrator, sys; from orchestrator.controller.lab import packaged_playbook as p; "
        f"assert orchestrator.__file__.startswith({str(site)!r}), orchestrator.__file__; "
        "from orchestrator.cli.main import run_command as run; "
        "lab = sys.argv[1]; assert run(['lab', 'create', lab]) == 0; "
        "sys.exit(run(['plan', str(p('eagle-fast-verify.yaml')), '--hosts', lab + '/hosts.yaml', '--diff']))"
    )
    words = [sys.executable, "-P", "-c", code, str(tmp_path / "lab")]
    done = subprocess.run(words, cwd=tmp_path, env=_only(site), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "fusion-with-fewer-channels" in done.stdout
    assert "_is_sm120_supported" in done.stdout


def _only(site: Path) -> dict[str, str]:
    """Our package from `site`, everything it depends on from this environment."""
    import os

    return {**os.environ, "PYTHONPATH": str(site)}
