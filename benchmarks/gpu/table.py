"""What the product does to real servers on a real GPU, as one Markdown table.

    python -m benchmarks.gpu.table --rig /tmp/rig --out DIRECTORY [--seconds 540] [--pair | --cpu] [ROW ...]

Run it from a checkout, with the interpreter that install.sh made (`/tmp/rig/own/bin/python`). Rows: foreign, campaign,
kill, memory, reap, early; with `--pair` (two cards): pair. Each row is written as it comes: table.md, rows.jsonl,
transcript.txt (all that the product said, with times), timeline.txt (GPU memory, processes, fatal lines).

`--cpu` drives the same rows, but for memory, on the SGLang of tests/rig: what it shows is this script and the
product's way through it, not a GPU.
"""

from __future__ import annotations

import argparse
import select
import shutil
import signal
import subprocess
import tarfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from benchmarks.gpu.bench import Bench, Row, kill_all
from benchmarks.gpu.campaigns import Rig
from benchmarks.gpu.observe import Stat, table
from benchmarks.gpu.product import ArmSpan, Command

ORPHAN_WATCH_S = 60.0
HOLDER_MIB = 3000  # what `hold` asks for, and a context
Later = Callable[[], None]


class Stopped(Exception):
    """This row cannot go on."""


class TimeIsUp(Stopped):
    """Nothing more is begun; what is under way is put back."""


def ring(_signal: int, _frame: object) -> None:
    raise TimeIsUp("the time is up")


# ---------------------------------------------------------------- waiting


def wait_until(reached: Callable[[], bool], limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if reached():
            return True
        time.sleep(0.05)
    return False


def last_arm(command: Command) -> ArmSpan | None:
    arms = command.arms()
    return arms[-1] if arms else None


def await_arm(command: Command, place: int, step: str, limit_s: float) -> ArmSpan:
    """Until arm number `place` (from 0) has taken this step. Raises when the command ended, or it took too long."""

    def reached() -> bool:
        arms = command.arms()
        return command.is_over or (len(arms) > place and step in arms[place].steps)

    wait_until(reached, limit_s)
    arms = command.arms()
    if len(arms) <= place or step not in arms[place].steps:
        said = "\n".join(s.text for s in command.said[-15:])
        ended = f"\nit ended with {command.finish(1.0)}" if command.is_over else ""
        raise Stopped(f"arm {place} never came to {step!r}:\n{said}{ended}")
    return arms[place]


def await_held(holder: subprocess.Popen[str]) -> None:
    assert holder.stdout is not None
    ready, _, _ = select.select([holder.stdout], [], [], 60.0)
    if not ready or holder.stdout.readline().strip() != "held":
        raise Stopped("the foreign process got no memory")


def importing(bench: Bench, since: float) -> bool:
    """The newest server has children that have not taken a title yet."""
    return sum("spawn_main" in s.title for s in bench.watch.living(since)) >= 2


# ---------------------------------------------------------------- rows on one card


def foreign(bench: Bench) -> None:
    """Somebody else's process on the card: named, left alone, and a reason to refuse a run."""
    before = bench.before()
    holder = bench.hold(2048)
    await_held(holder)
    _, listed, _ = bench.ask("host", "reap", "rig")
    bench.ask("host", "reap", "rig", "--yes")
    named = [h for h in listed.get("holders", []) if h["pid"] == holder.pid]
    code, answer, seconds = bench.ask("run", str(bench.rig.work / "long.yaml"), "--baseline-only")
    alive = "alive after reap --yes" if holder.poll() is None else "ENDED by reap --yes"
    problems = answer.get("error", {}).get("problems", [{}])
    row = Row("a foreign process holds 2 GiB; host reap, host reap --yes, run", f"{alive}; run ended with {code}")
    row.cause = f"{problems[0].get('what')}: {problems[0].get('facts')}"
    row.detect_s = seconds
    row.notes.append(
        f"reap said: {named[0]['why']} (end: {named[0]['would_end']})" if named else "reap did not list it"
    )
    begin = time.monotonic()
    bench.release()
    wait_until(lambda: bench.watch.idle_at(begin, bench.floor_mib) is not None, 5.0)
    row.left = bench.left(before)
    bench.add(row)


def campaign(bench: Bench) -> Later:
    """Graphs on and off, a patch that breaks the capture, the watchdog; the controller is killed in the last arm."""
    before = bench.before()
    command = bench.run("arms")
    try:
        first = await_arm(command, 0, "verify", 260.0)
        bench.add(served_row(bench, "baseline, first start on the machine", first))
        no_graphs = await_arm(command, 1, "verify", 150.0)
        bench.add(served_row(bench, "the same arm without CUDA graphs", no_graphs))
        broken = await_arm(command, 2, "verify", 120.0)
        bench.add(failed_row(bench, "a patch that looks at ids on the host: breaks graph capture", broken))
        await_arm(command, 3, "verify", 120.0)
        await_arm(command, 4, "gate", 120.0)
        bench.rig.flag.touch()
        spinning = await_arm(command, 4, "verify", 120.0)
        bench.rig.flag.unlink()
        bench.add(failed_row(bench, "a patched kernel that never ends, under the watchdog", spinning))
        last = await_arm(command, 5, "launch", 60.0)
        return early_kill(bench, command, last.begin_at, with_guard=False)
    finally:
        bench.rig.flag.unlink(missing_ok=True)
        if not command.is_over:
            command.finish(5.0)
        bench.say(f"left after the campaign: {bench.left(before)}")


def served_row(bench: Bench, did: str, arm: ArmSpan) -> Row:
    row = bench.arm_row(did, arm)
    stopped_at = arm.steps["measure"][0] if "measure" in arm.steps else arm.begin_at
    idle = bench.watch.idle_at(stopped_at, bench.floor_mib)
    row.idle_s = None if idle is None else idle - stopped_at
    record = bench.experiment(arm.experiment)
    values = [launch["facts"].get("value") for a in record["arms"] for launch in a["launches"]]
    row.notes.append(f"output_tps {values}")
    _, found, _ = bench.ask("finding", "list", "--campaign", "gpu-arms")
    row.notes += [f["summary"] for f in found.get("findings", []) if f["hypothesis_id"] == arm.hypothesis]
    row.left = survivors(bench, arm)
    if arm.declared_at is not None and arm.kind == "baseline":
        bench.add(row)
        raise Stopped("the baseline does not serve")
    return row


def failed_row(bench: Bench, did: str, arm: ArmSpan) -> Row:
    row = bench.arm_row(did, arm)
    row.left = survivors(bench, arm)
    return row


def survivors(bench: Bench, arm: ArmSpan) -> list[str]:
    """Of the arm's own family, while the run goes on to the next."""
    keys = {life.stat.key for life in bench.watch.family(arm.begin_at, arm.end_at or time.monotonic())}
    return [f"process {s.pid} {s.title[:60]}" for s in bench.watch.living(arm.begin_at) if s.key in keys]


def supervisors(command: Command, main: Stat) -> list[Stat]:
    """The agent below the controller, whatever the agent forked, and the guard, which is the server's parent."""
    there = table()
    below = {command.pid}
    for _ in range(4):
        below |= {s.pid for s in there.values() if s.ppid in below and s.sid != main.sid}
    return [there[pid] for pid in {*below, main.ppid} - {command.pid, 0, 1} if pid in there]


def early_kill(bench: Bench, command: Command, since: float, *, with_guard: bool) -> Later:
    """SIGKILL of controller and main while the children import. Returns what ends the row a minute later."""
    before = bench.before()
    if not wait_until(lambda: importing(bench, since), 60.0):
        raise Stopped("no child was ever seen importing")
    time.sleep(3.0)
    main = bench.watch.main(since)
    if main is None:
        raise Stopped("main ended by itself")
    doomed = supervisors(command, main) if with_guard else []
    kill_at = time.monotonic()
    command.kill()
    kill_all([*doomed, main])
    age = kill_at - next(life.seen_at for life in bench.watch.family(since) if life.stat.key == main.key)
    time.sleep(0.5)
    orphans = [s for s in bench.watch.living(since) if s.key != main.key]
    wait_until(lambda: not bench.watch.living(since), 4.0 if with_guard else 8.0)
    still = len(bench.watch.living(since))
    gone_s = max((life.dead_at or kill_at) - kill_at for life in bench.watch.family(since, kill_at))
    code, answer, seconds = bench.ask("host", "recover", "rig")
    recovered_at = time.monotonic()
    who = "controller, agent, guard and main" if with_guard else "controller and main"
    row = Row(f"SIGKILL of {who} {age:.0f} s after the launch, children importing; host recover", "")
    row.notes.append(f"{len(orphans)} orphan(s) 0.5 s after the kill, {still} when recover began")
    if still == 0:
        row.notes.append(f"the family was gone {gone_s:.1f} s after the kill, before recover")
    row.notes.append(f"recover ended with {code} in {seconds:.1f} s: {answer.get('did') or answer.get('error')}")
    family = {life.stat.key: life for life in bench.watch.family(since, kill_at + 1.0)}
    allowed = bench.before().keys

    def finish() -> None:
        wait = recovered_at + ORPHAN_WATCH_S - time.monotonic()
        time.sleep(max(0.0, wait))
        alive = [s for s in bench.watch.living(since) if s.key in family]
        pids = {pid for pid, _ in family}
        too_early = sorted(pids & bench.watch.holders_between(kill_at, recovered_at))
        if too_early:
            row.notes.append(f"took memory before recover came: {too_early}")
        took = sorted(pids & bench.watch.holders_between(recovered_at, recovered_at + ORPHAN_WATCH_S))
        row.outcome = "ended for good" if not alive and not took else "an orphan came back"
        row.notes.append(
            f"for {ORPHAN_WATCH_S:.0f} s no orphan took GPU memory" if not took else f"took memory: {took}"
        )
        row.left = [f"process {s.pid} {s.title[:60]}" for s in alive]
        bench.add(row)

    bench.say(f"new since the kill: {len(allowed - before.keys)} processes")
    return finish


def kill(bench: Bench) -> None:
    """SIGKILL of the scheduler while it is measured."""
    before = bench.before()
    command = bench.run("long", "--baseline-only")
    await_arm(command, 0, "gate", 150.0)
    time.sleep(1.0)
    cut(bench, command, "sglang::scheduler", "SIGKILL of the scheduler while it is measured")
    bench.rows[-1].left = bench.left(before)


def cut(bench: Bench, command: Command, title: str, did: str) -> None:
    """Kill the ranks of that title, wait for the command's end, and add the row."""
    arm = last_arm(command)
    assert arm is not None
    ranks = [s for s in bench.watch.living(arm.begin_at) if s.title.startswith(title)]
    kill_at = time.monotonic()
    kill_all(ranks)
    code, _ = command.finish(120.0)
    hurt, *after = [one for one in command.arms() if one.begin_at >= arm.begin_at]
    row = bench.arm_row(did, hurt, cut_at=kill_at)
    if after:
        row.notes.append(f"then tried once more: {'ready' if 'gate' in after[-1].steps else 'not ready'}")
    family = [life for life in bench.watch.family(arm.begin_at) if life.seen_at <= kill_at]
    workers = [life for life in family if "compile_worker" in life.title]
    ends = [life.dead_at - kill_at for life in family if life.dead_at is not None and life.dead_at >= kill_at]
    row.notes.append(
        f"{len(ranks)} rank(s) killed; the last of {len(ends)} processes was dead {max(ends, default=0):.2f} s later"
    )
    row.notes.append(
        f"{len(workers)} compile worker(s), {sum(w.dead_at is None for w in workers)} alive; exit code {code}"
    )
    row.left = survivors(bench, arm)
    bench.add(row)


def early(bench: Bench) -> Later:
    """The early kill once more, with nobody of ours left on the host."""
    command = bench.run("long", "--baseline-only")
    arm = await_arm(command, 0, "launch", 60.0)
    return early_kill(bench, command, arm.begin_at, with_guard=True)


def memory(bench: Bench) -> None:
    """Nearly all memory is the cache's: it serves short prompts, and dies of the first long one."""
    before = bench.before()
    command = bench.run("greedy", "--baseline-only")
    command.finish(200.0)
    arm = last_arm(command)
    if arm is None:
        raise Stopped("no arm was begun")
    row = bench.arm_row("--mem-fraction-static 0.995 and a prompt of 7000 tokens", arm)
    row.left = bench.left(before)
    bench.add(row)


def reap(bench: Bench) -> None:
    """A server of ours that lost its controller, agent and guard, beside a foreign process: reap ends the one only."""
    before = bench.before()
    command = bench.run("long", "--baseline-only")
    arm = await_arm(command, 0, "launch", 60.0)
    holder = bench.hold(2048)
    await_arm(command, 0, "gate", 150.0)
    await_held(holder)
    main = bench.watch.main(arm.begin_at)
    if main is None:
        raise Stopped("the server is not there")
    doomed = supervisors(command, main)
    command.kill()
    kill_all(doomed)
    time.sleep(1.0)
    orphans = len(bench.watch.living(arm.begin_at))
    _, listed, _ = bench.ask("host", "reap", "rig")
    ending = bench.orchestrator("host", "reap", "rig", "--yes")
    wait_until(lambda: ending.is_over or not bench.watch.living(arm.begin_at), 30.0)
    gone_at = time.monotonic()
    floor = tuple(m + (HOLDER_MIB if i == 0 else 0) for i, m in enumerate(bench.floor_mib))
    wait_until(lambda: bench.watch.idle_at(ending.begin_at, floor) is not None, 5.0)
    idle_at = bench.watch.idle_at(ending.begin_at, floor)
    time.sleep(1.5)
    row = Row("controller, agent and guard killed, server serving, a foreign process beside it; host reap --yes", "")
    alive = "alive" if holder.poll() is None else "ENDED"
    row.outcome = f"{len(bench.watch.living(arm.begin_at))} of {orphans} of ours left, the foreign one {alive}"
    row.notes.append(f"ours were gone {gone_at - ending.begin_at:.1f} s after the command was given")
    row.notes.append(
        f"reap {'was over' if ending.is_over else 'still waited for the memory'}; then the foreign one left"
    )
    released_at = time.monotonic()
    bench.release()
    code, answer = ending.finish(100.0)
    row.notes.append(f"reap ended with {code}, {time.monotonic() - released_at:.1f} s later")
    ours = [h for h in listed.get("holders", []) if h["would_end"]]
    theirs = [f"{h['pid']} ({h['why']})" for h in listed.get("holders", []) if not h["would_end"]]
    row.cause = f"would end {len(ours)} ({ours[0]['why'] if ours else 'none'}); would leave {', '.join(theirs)}"
    row.idle_s = None if idle_at is None else idle_at - ending.begin_at
    if "error" in answer:
        row.notes.append(str(answer["error"]["problems"][0]["what"]))
    code, answer, seconds = bench.ask("host", "recover", "rig")
    row.notes.append(f"then recover: {code} in {seconds:.1f} s, {answer.get('did') or answer.get('error')}")
    row.left = bench.left(before)
    bench.add(row)


# ---------------------------------------------------------------- rows on two cards


def pair(bench: Bench) -> None:
    """Tensor parallel 2: a collective that the library refuses, then SIGKILL of rank 1 in the baseline's second run."""
    before = bench.before()
    command = bench.run("pair")
    bench.add(served_row(bench, "tensor parallel 2, baseline", await_arm(command, 0, "verify", 260.0)))
    tree = await_arm(command, 1, "verify", 150.0)
    bench.add(failed_row(bench, "NCCL_ALGO=Tree as an environment hypothesis", tree))
    await_arm(command, 2, "gate", 150.0)
    time.sleep(1.0)
    cut(bench, command, "sglang::scheduler_TP1", "SIGKILL of rank 1 while it is measured")
    bench.rows[-1].left = bench.left(before)


# ---------------------------------------------------------------- all of it


def closing(bench: Bench, host: str) -> None:
    """The last word: proved clean, and nothing kept."""
    code, proof, seconds = bench.ask("host", "verify", host)
    row = Row("host verify, host forget", f"verify ended with {code} in {seconds:.1f} s")
    row.notes.append(f"clean {proof.get('clean')}, pending {proof.get('pending')}, {proof.get('files')} files")
    code, _, _ = bench.ask("host", "forget", host)
    row.notes.append(f"forget ended with {code}")
    row.left = [str(p) for p in bench.rig.site.glob(".orchestrator*")]
    bench.add(row)


NEEDS_S: dict[str, float] = {
    "foreign": 30,
    "campaign": 330,
    "early": 95,
    "kill": 60,
    "memory": 65,
    "reap": 70,
    "pair": 240,
}
"""Seconds that a row must have left to be begun."""


def carry_out(bench: Bench, names: list[str]) -> None:
    rows: dict[str, Callable[[Bench], Later | None]] = {
        "foreign": foreign,
        "campaign": campaign,
        "early": early,
        "kill": kill,
        "memory": memory,
        "reap": reap,
        "pair": pair,
    }
    later: list[Later] = []
    for name in names:
        if bench.left_s < NEEDS_S[name]:
            bench.say(f"== {name}: {bench.left_s:.0f} s are not enough")
            continue
        bench.say(f"== {name}")
        try:
            finish = rows[name](bench)
            later += [finish] if finish is not None else []
        except Stopped as stop:
            bench.say(f"{name} stopped: {stop}")
            if name in ("campaign", "pair") or isinstance(stop, TimeIsUp):
                break
    for finish in later:
        finish()
    signal.alarm(0)


def keep_logs(bench: Bench) -> None:
    """The logs of the servers, as the ledger kept them, in one archive."""
    with tarfile.open(bench.out / "state.tar.gz", "w:gz") as archive:
        archive.add(bench.rig.work, arcname="work")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rig", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/gpu-table"), help="ledger and playbooks; made anew")  # noqa: S108
    parser.add_argument("--port", type=int, default=31000)
    parser.add_argument(
        "--seconds",
        type=float,
        default=540.0,
        help="no row begins that would not end within them; then all is put back",
    )
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--pair", action="store_true", help="the rows for two cards")
    kind.add_argument("--cpu", action="store_true", help="without a card, on the rig of tests/rig")
    parser.add_argument("rows", nargs="*", choices=[*NEEDS_S, []], metavar="ROW")
    options = parser.parse_args()
    alone = ["foreign", "campaign", "kill", "memory", "reap", "early"]
    names = options.rows or (["pair"] if options.pair else [n for n in alone if n != "memory" or not options.cpu])
    shutil.rmtree(options.work, ignore_errors=True)
    bench = Bench(Rig(options.rig, options.work, options.port, options.cpu), options.out, options.seconds)
    signal.signal(signal.SIGALRM, ring)
    signal.alarm(int(options.seconds))
    try:
        carry_out(bench, names)
        closing(bench, "pair" if options.pair else "rig")
    except Exception:
        traceback.print_exc()
        raise
    finally:
        bench.close()
        keep_logs(bench)
        print(bench.markdown())


if __name__ == "__main__":
    main()
