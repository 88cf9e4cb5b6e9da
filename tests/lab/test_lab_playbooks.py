"""The campaign that ships with the product fits the lab, and its patches fit where they say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.core.patching import parse, paths_of, plan_files
from orchestrator.lab import Lab
from orchestrator.playbook import load

REPOSITORY = Path(__file__).parents[2]
CAMPAIGN = REPOSITORY / "playbooks" / "eagle-fast-verify.yaml"
PATCHES = sorted((REPOSITORY / "patches").glob("*.patch"))


def planned(patch: Path, top: Path, offset: str) -> dict[str, bytes]:
    parsed = parse(patch.read_bytes(), patch.name)
    read = {path: (top / path).read_bytes() for path in paths_of([parsed])}
    return {edit.path: edit.after or b"" for edit in plan_files(parsed, read, offset=offset)}  # type: ignore[arg-type]


def test_the_campaign_loads(lab: Lab) -> None:
    """Every row of the campaign is there, and its two bundles are declared."""
    loaded = load(CAMPAIGN, hosts_file=lab.hosts_file)
    bundles = {h.id for h in loaded.playbook.hypotheses if h.bundle}
    assert len(loaded.playbook.hypotheses) == 7
    assert bundles == {"fusion-with-fewer-channels", "custom-all-reduce-on-pcie"}


@pytest.mark.parametrize("patch", PATCHES, ids=lambda p: p.stem)
def test_a_patch_fits_the_lab(lab: Lab, patch: Path) -> None:
    """With `offset: unique` each patch finds its lines in the lab's tree, and the result compiles."""
    for path, after in planned(patch, lab.root / "tree", "unique").items():
        compile(after, path, "exec")


@pytest.mark.sglang
@pytest.mark.parametrize("patch", PATCHES, ids=lambda p: p.stem)
def test_a_patch_fits_the_real_sglang_exactly(patch: Path) -> None:
    """In SGLang 0.5.10.post1 each hunk stands on the line it names."""
    rig = os.environ.get("ORCHESTRATOR_TEST_RIG")
    if not rig:
        pytest.skip("ORCHESTRATOR_TEST_RIG names no installed rig")
    (top,) = Path(rig).glob("venv/lib/python3*/site-packages")
    for path, after in planned(patch, top, "exact").items():
        compile(after, path, "exec")
