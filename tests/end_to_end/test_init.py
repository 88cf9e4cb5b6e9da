"""`init` on a host that serves, and the playbook that it writes: checked, planned and run as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from orchestrator.cli.main import run_command
from orchestrator.lab.build import free_port
from tests.end_to_end.conftest import Bench
from tests.end_to_end.test_service import lab_command
from tests.services.live import Live, serving


@pytest.fixture
def live(bench: Bench, tmp_path: Path) -> Iterator[Live]:
    gpus = bench.inventory()["targets"]["kimi-lab"]["gpus"]
    env = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)), "NCCL_MAX_NCHANNELS": "8"}
    with serving(tmp_path / "live", lab_command(bench), bench.lab.port, env) as found:
        yield found


def init(bench: Bench, out: Path, *words: str) -> tuple[int, dict[str, object]]:
    chosen = words or ("--port", str(bench.lab.port))  # other tests have servers on this machine, too
    code = run_command(["init", "lab", "--hosts", str(bench.lab.hosts_file), "--out", str(out), "--json", *chosen])
    shown = bench.capsys.readouterr()
    return code, json.loads(shown.out)


def test_what_init_writes_is_checked_planned_and_run_with_the_service_back(
    bench: Bench, live: Live, tmp_path: Path
) -> None:
    """Nothing is edited; the baseline is the live server's own configuration, and the secret stayed on the host."""
    out, before, tree = tmp_path / "lab.yaml", live.picture(), bench.tree()
    code, shown = init(bench, out)
    assert code == 0 and shown["blanks"] == []
    assert run_command(["check", str(out)]) == 0
    bench.capsys.readouterr()
    code, plan = bench.run("plan", str(out))
    assert code == 0, plan
    code, summary = bench.run("run", str(out))
    assert code == 0, summary
    assert summary["findings"][0]["verdict"] in ("no_effect", "inconclusive")
    assert live.answers() and live.picture() == before and bench.tree() == tree
    here = [out, *(path for path in bench.state.rglob("*") if path.is_file())]
    assert not [path for path in here if live.secret.encode() in path.read_bytes()]
    assert live.secret not in json.dumps([shown, plan, summary])


def test_the_baseline_is_the_live_servers_own(bench: Bench, live: Live, tmp_path: Path) -> None:
    """Flags, variables, cards, port, directory, interpreter and tree; a secret is a reference; our launches name
    themselves."""
    out = tmp_path / "lab.yaml"
    assert init(bench, out)[0] == 0
    playbook = dict(YAML(typ="safe").load(out.read_text()))
    target = playbook["targets"]["found"]
    asked = bench.inventory()["targets"]["kimi-lab"]
    assert (target["python"], target["source"], target["model"]) == (asked["python"], asked["source"], asked["model"])
    assert (target["port"], target["gpus"]) == (asked["port"], asked["gpus"])
    assert target["args"] == {"tp-size": 8, "cuda-graph-max-bs": 64, "disable-custom-all-reduce": True}
    assert target["env"]["NCCL_MAX_NCHANNELS"] == "8" and "HF_TOKEN" not in target["env"]
    assert target["from_service"] == ["HF_TOKEN"] and target["service"] == {"process": {}}
    assert target["cwd"] == str(live.folder)
    assert playbook["hosts"]["lab"]["gpu_tool"] == str(bench.lab.nvidia_smi)
    assert "serve.sh" in out.read_text() and "weights: " in out.read_text()


STUB = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Door(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Door).serve_forever()
"""


def test_several_servers_are_listed_and_one_is_chosen(bench: Bench, live: Live, tmp_path: Path) -> None:
    """Both are named with pid and port when the choice fits none; a port chooses."""
    other, package = free_port(), tmp_path / "other" / "sglang"
    package.mkdir(parents=True)
    (package / "launch_server.py").write_text(STUB)
    (package / "__init__.py").touch()
    words = [str(bench.lab.python), "-m", "sglang.launch_server", "--port", str(other), "--tp-size", "2"]
    with serving(tmp_path / "other", words, other):
        code, shown = init(bench, tmp_path / "x.yaml", "--pid", "1")
        assert code == 2 and str(other) in json.dumps(shown) and str(bench.lab.port) in json.dumps(shown)
        assert not (tmp_path / "x.yaml").exists()
        code, shown = init(bench, tmp_path / "x.yaml", "--port", str(other))
        assert code == 0 and f"port: {other}" in (tmp_path / "x.yaml").read_text()
        assert [blank["what"] for blank in shown["blanks"]] == ["model: it is not on the command line"]  # type: ignore


def test_a_file_that_is_there_is_not_overwritten(bench: Bench, tmp_path: Path) -> None:
    out = tmp_path / "mine.yaml"
    out.write_text("mine")
    code, shown = init(bench, out)
    assert code == 5 and "is there already" in json.dumps(shown) and out.read_text() == "mine"
