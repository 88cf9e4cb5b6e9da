"""The main process: one loop over signals, ranks and clients."""

from __future__ import annotations

import heapq
import os
import selectors
import signal
import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from itertools import count
from pathlib import Path

from lab_hardware import launches, settings
from lab_hardware.faults import Faults, read_faults
from lab_hardware.model import Noise

import sglang
from sglang.srt.entrypoints.connection import Connection, HttpRequest
from sglang.srt.entrypoints.engine import Engine
from sglang.srt.entrypoints.routes import Routes
from sglang.srt.entrypoints.warmup import warm_up
from sglang.srt.managers.io_struct import Message, Pipe
from sglang.srt.server_args import ServerArgs
from sglang.srt.utils.log import log

PORT_TAKEN_STATUS = 3
WARMUP_IS_OVER = b"\0"  # no signal has this number


class Signals:
    """Signals as they come, for a loop that sleeps on `woken`. Made before the first fork: a rank can fail at once."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self.wake, self.woken = socket.socketpair()
        for end in (self.wake, self.woken):
            end.setblocking(False)
        signal.set_wakeup_fd(self.wake.fileno(), warn_on_full_buffer=False)
        self.catch(signal.SIGQUIT)
        self.catch(signal.SIGCHLD)

    def catch(self, number: int) -> None:
        signal.signal(number, lambda received, _: self.received.append(received))


class Server:
    """Loading, starting, up, draining; `run` returns the exit status, or never when the server ends by SIGKILL."""

    def __init__(
        self, server_args: ServerArgs, engine: Engine, signals: Signals, faults: Faults, treatment: str
    ) -> None:
        self.args = server_args
        self._engine = engine
        self._faults = faults
        self._treatment = treatment
        self._selector = selectors.DefaultSelector()
        self._signals = signals
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._waiting = set(range(len(engine.pipes)))
        self._listener: socket.socket | None = None
        self._has_lost_port = False
        self._warmup_error: str | None = None
        self._status: int | None = None
        self.stage = "loading"
        self.routes = Routes(server_args, engine.pipes[0], self)

    def run(self) -> int:
        """Serve until something ends it."""
        self._watch()
        if (fault := self._faults.of("early_healthy")) is not None:
            self._listen()
            self.after(fault.seconds, self._ranks_are_ready)
        while self._status is None:
            for key, _ in self._selector.select(self._until_next_timer()):
                key.data(key.fileobj)
            while self._timers and self._timers[0][0] <= time.monotonic():
                heapq.heappop(self._timers)[2]()
            while self._signals.received and self._status is None:
                self._on_signal(self._signals.received.pop(0))
        return self._status

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Have `action` called once, later."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), action))

    @property
    def lies_about_health(self) -> bool:
        """Whether `/health` is to say 200 before a token can be had."""
        return self.stage == "loading" and self._faults.of("early_healthy") is not None

    def _watch(self) -> None:
        self._selector.register(self._signals.woken, selectors.EVENT_READ, self._on_wake)
        for rank, pipe in enumerate(self._engine.pipes):
            self._selector.register(pipe, selectors.EVENT_READ, lambda p, r=rank: self._on_rank(p, r))

    def _on_wake(self, woken: socket.socket) -> None:
        if WARMUP_IS_OVER in woken.recv(4096):
            self._warmup_is_over()

    def _until_next_timer(self) -> float | None:
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    # ------------------------------------------------------------ ranks

    def _on_rank(self, pipe: Pipe, rank: int) -> None:
        try:
            messages = list(pipe.receive())
        except (EOFError, OSError):
            self._selector.unregister(pipe)
            return
        for message in messages:
            if "ready" in message:
                self._on_ready(rank, message)
            else:
                self.routes.on_message(message)

    def _on_ready(self, rank: int, message: Message) -> None:
        self._waiting.discard(rank)
        self.routes.max_total_num_tokens = int(message["max_total_num_tokens"])
        if not self._waiting and self._faults.of("early_healthy") is None:
            self._ranks_are_ready()

    def _ranks_are_ready(self) -> None:
        if self._waiting:
            self.after(0.05, self._ranks_are_ready)
            return
        self.stage = "starting"
        if self._faults.of("ignore_sigterm") is not None:
            signal.signal(signal.SIGTERM, lambda *_: log("SIGTERM received, and ignored."))
        else:
            self._signals.catch(signal.SIGTERM)
        log(f"INFO:     Started server process [{os.getpid()}]")
        log("INFO:     Waiting for application startup.")
        log("INFO:     Application startup complete.")
        if self._listener is None:
            self._listen()
        if self.args.skip_server_warmup:
            self._fire_up()
        else:
            threading.Thread(target=self._warm_up, name="warmup", daemon=True).start()

    def _warm_up(self) -> None:
        try:
            warm_up(self.args.host, self.args.port, self.args.api_key, settings().constants.warmup_timeout_s)
        except (OSError, ValueError) as error:
            self._warmup_error = repr(error)
        self._signals.wake.send(WARMUP_IS_OVER)

    def _warmup_is_over(self) -> None:
        if self._warmup_error is None:
            self._fire_up()
            return
        log(f"Initialization failed. warmup error: {self._warmup_error}")
        os.kill(os.getpid(), signal.SIGQUIT)

    def _fire_up(self) -> None:
        log("The server is fired up and ready to roll!")
        if self._has_lost_port:
            log("INFO:     Application shutdown complete.")
            self._status = PORT_TAKEN_STATUS
        elif self.stage == "starting":
            self.stage = "up"

    # ------------------------------------------------------------ signals

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGTERM and self.stage != "draining":
            log("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
            self.stage = "draining"
            self.after(settings().constants.drain_s, self._exit_gracefully)
            self.on_idle()
        elif number == signal.SIGQUIT:
            self._crash()
        elif number == signal.SIGCHLD:
            self._on_deaths()

    def _on_deaths(self) -> None:
        for death in self._engine.reap():
            if self.stage == "loading":
                rank = death.name.removeprefix("scheduler_")
                log(f"Rank {rank} scheduler died during initialization (exit code: {death.status}).")
            else:
                log(
                    f"Subprocess {death.name} (pid={death.pid}) crashed with exit code {death.status}. "
                    "Triggering SIGQUIT for cleanup..."
                )
            self._crash()

    def _crash(self) -> None:
        if self.stage == "loading":
            log("Received sigquit from a child process. It usually means the child failed.")
        else:
            log("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        self._kill_everything()

    def on_idle(self) -> None:
        """No request is left: a draining server ends."""
        if self.stage == "draining" and not self.routes.active:
            self._exit_gracefully()

    def _exit_gracefully(self) -> None:
        rids = sorted(self.routes.active)
        log(
            f"Gracefully exiting... Remaining number of requests {len(rids)}. Remaining requests remaining_rids={rids}."
        )
        if self.routes.was_used_to_the_end:
            launches.complete(settings().root, self._treatment)
        self._kill_everything()

    def _kill_everything(self) -> None:
        log(f"kill_process_tree called: parent_pid={os.getpid()}, include_parent=True, pid={os.getpid()}")
        self._engine.kill_process_tree()
        os.kill(os.getpid(), signal.SIGKILL)

    # ------------------------------------------------------------ clients

    def _listen(self) -> None:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self.args.host, self.args.port))
            listener.listen(128)
        except OSError as error:
            listener.close()
            self._has_lost_port = True
            log(
                f"ERROR:    [Errno {error.errno}] error while attempting to bind on address "
                f"('{self.args.host}', {self.args.port}): {os.strerror(error.errno or 0).lower()}"
            )
            log("INFO:     Waiting for application shutdown.")
            return
        listener.setblocking(False)
        self._listener = listener
        self._selector.register(listener, selectors.EVENT_READ, self._on_client)
        log(f"INFO:     Uvicorn running on http://{self.args.host}:{self.args.port} (Press CTRL+C to quit)")

    def _on_client(self, listener: socket.socket) -> None:
        try:
            sock, address = listener.accept()
        except BlockingIOError:
            return
        connection = Connection(sock, f"{address[0]}:{address[1]}")
        self._selector.register(connection, selectors.EVENT_READ, self._on_connection)

    def _on_connection(self, connection: Connection) -> None:
        connection.flush()
        if connection.is_gone or not connection.fill():
            self.routes.forget(connection)
            self._selector.unregister(connection)
            connection.sock.close()
            return
        self.serve(connection)

    def serve(self, connection: Connection) -> None:
        """Answer what the connection holds, and see to it that what is left gets written."""
        try:
            while not connection.is_busy and not connection.is_closing:
                request = connection.next_request()
                if request is None:
                    break
                self._answer(connection, request)
        except ValueError as error:
            connection.is_closing = True
            connection.answer(400, {"error": {"message": str(error)}})
        self.settle(connection)

    def _answer(self, connection: Connection, request: HttpRequest) -> None:
        status = self.routes.answer(connection, request)
        phrase = HTTPStatus(status).phrase
        log(f'INFO:     {connection.peer} - "{request.method} {request.target} HTTP/1.1" {status} {phrase}')

    def settle(self, connection: Connection) -> None:
        """Close an answered connection, or watch one that takes its time."""
        if connection.is_closing and not connection.unsent:
            self._selector.unregister(connection)
            connection.sock.close()
            connection.is_closing = False
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.unsent else 0)
        self._selector.modify(connection, events, self._on_connection)


def launch_server(server_args: ServerArgs) -> int:
    """Start the ranks, serve, and end them whatever happens. The result is the exit status."""
    here = settings()
    number = launches.start(here.root)
    faults = read_faults(here.root / "faults.json", os.environ, number)
    source = Path(sglang.__path__[0])
    treatment = launches.treatment_digest(here.root, server_args.values, os.environ, source)
    repetition = launches.repetition(here.root, treatment)
    noise = Noise(here.constants, seed=here.seed, treatment=treatment, repetition=repetition)
    signals = Signals()
    engine = Engine(server_args, noise, faults)
    try:
        return Server(server_args, engine, signals, faults, treatment).run()
    finally:
        engine.kill_process_tree()
