"""Targets that no host can take as they are meant are named with their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.playbook import check

CASES = {
    "source: tree/sglang": "'tree/sglang' is not absolute",
    "cwd: here": "'here' is not absolute",
    "guarded: [/ok, there]": "'there' is not absolute",
    "guarded: [/]": "the whole file system",
    "python: venv/bin/python": "'venv/bin/python' is not absolute",
    "health: health": "'health' is not the path of a URL",
    "gpus: [0, 1, 0]": "GPU 0 is named twice",
    "gpus: [-1]": "there is no GPU -1",
    "engine: command, launch: []": "`launch` is empty",
    "args: {port: 4000}": "the port belongs to the target",
    "args: {tp-size: 2, tp_size: 4}": "`tp_size` and `tp-size` are one flag",
}


@pytest.mark.parametrize("inside", [False, True], ids=["by name", "in the host"])
@pytest.mark.parametrize("text", sorted(CASES))
def test_it_is_complained_about_once(tmp_path: Path, text: str, inside: bool) -> None:
    """One problem, in the line of the target, whether it has a name or is written inside its host."""
    target = f"{{{text}}}"
    hosts = (
        f"hosts: {{g: {{target: {target}}}}}\n"
        if inside
        else f"hosts: {{g: {{target: t}}}}\ntargets: {{t: {target}}}\n"
    )
    playbook = tmp_path / "p.yaml"
    playbook.write_text(f"campaign: c\n{hosts}hypotheses:\n- {{id: a, claim: x, changes: [{{env: {{B: 1}}}}]}}\n")
    problems = check(playbook)
    assert [CASES[text] in problem.what for problem in problems] == [True]
    assert problems[0].where is not None
    assert problems[0].where.line == (2 if inside else 3)


@pytest.mark.parametrize(
    "text", ["source: /a/b/", "gpus: []", "gpus: [1, 0]", "python: python3.12", "args: {host: 0.0.0.0}"]
)
def test_what_a_host_can_take_passes(tmp_path: Path, text: str) -> None:
    """No complaint about what is unusual and still plain."""
    playbook = tmp_path / "p.yaml"
    hypothesis = "hypotheses:\n- {id: a, claim: x, changes: [{env: {B: 1}}]}\n"
    playbook.write_text(f"campaign: c\nhosts: {{g: {{target: {{{text}}}}}}}\n{hypothesis}")
    assert list(check(playbook)) == []
