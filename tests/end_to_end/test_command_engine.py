"""A server that is neither SGLang nor vLLM: anything that speaks the OpenAI interface and is started by a command."""

from __future__ import annotations

import json
from pathlib import Path

from tests.end_to_end.conftest import Bench
from tests.end_to_end.rig import free_port

SERVER = '''\
"""Streams one word every PAUSE seconds."""
import json, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pace import PAUSE


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/alive" else 404)
        self.end_headers()

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        tokens = asked["max_tokens"]
        usage = {"prompt_tokens": 7, "completion_tokens": tokens}
        self.send_response(200)
        self.end_headers()
        if not asked.get("stream"):
            body = {"choices": [{"text": " word" * tokens, "finish_reason": "length"}], "usage": usage}
            self.wfile.write(json.dumps(body).encode())
            return
        for number in range(tokens):
            self.tell({"choices": [{"text": " word", "finish_reason": "length" if number == tokens - 1 else None}]})
            time.sleep(PAUSE)
        self.tell({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\\n\\n")

    def tell(self, event):
        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\\n\\n")

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
'''


def test_a_server_of_ones_own_is_tuned_by_its_source(bench: Bench, tmp_path: Path) -> None:
    """A patch of a module it imports is measured as the gain it is; its file comes back, and nothing compiled stays."""
    source = tmp_path / "own"
    source.mkdir()
    program = source / "server.py"
    program.write_text(SERVER)
    module = source / "pace.py"
    module.write_text("PAUSE = 0.010\n")
    target = {
        "engine": "command",
        "python": str(bench.lab.python),
        "source": str(source),
        "launch": [str(bench.lab.python), str(program), "{port}"],
        "health": "/alive",
        "port": free_port(),
        "ready": {"limit": "20s", "stall": "10s"},
    }
    bench.write_inventory({"hosts": {"here": {"route": "local", "target": "own"}}, "targets": {"own": target}})
    edit = {"file": "own/pace.py", "find": "PAUSE = 0.010", "replace": "PAUSE = 0.005"}
    row = {"id": "half-the-pause", "expect": "90%", "changes": [{"patch": {"edits": [edit]}}]}
    code, summary = bench.run("run", str(bench.write_playbook([row])))
    assert code == 0, json.dumps(summary)
    finding = summary["findings"][0]
    assert finding["verdict"] == "improved"
    assert 0.5 < finding["effect"] < 1.2
    assert module.read_text() == "PAUSE = 0.010\n"
    assert sorted(source.iterdir()) == [module, program]
