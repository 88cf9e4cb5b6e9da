"""A fixed sample of every layer of the fault harness. The whole of it is one command: see docs/faults.md."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults import (
    calls,
    controllers,
    deadman,
    disks,
    environment,
    frames,
    guards,
    parties,
    power,
    servers,
    simulator,
    states,
    table,
)
from tests.faults.examining import Verdict, imports_old_code, recover
from tests.faults.scenery import Scene
from tests.faults.table import Case, Row
from tests.faults.tracing import Point, why_not

pytestmark = pytest.mark.faults

SEED = 4
_REASON = why_not()
traced = pytest.mark.skipif(_REASON is not None, reason=_REASON or "strace works here")


def draw(cases: list[Case], count: int) -> list[Case]:
    return random.Random(SEED).sample(cases, min(count, len(cases)))


def prove(cases: list[Case], work: Path) -> Row:
    """Carries them out one after the other and asserts that each came out as promised."""
    row = table.carry_out("sample", cases, work, workers=1)
    assert not row.failures, row.failures
    assert not row.not_reached, row.not_reached
    assert row.points == len(cases)
    return row


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Point]]:
    base = tmp_path_factory.mktemp("trace") / "trace."
    yield calls.trace_story(base)
    table.clean_up(base)


@traced
def test_a_kill_before_any_call_is_recovered(points: list[Point], tmp_path: Path) -> None:
    """Sixteen of the calls of a whole experiment, the first and the last among them."""
    prove([*calls.kill_cases([points[0], points[-1]]), *draw(calls.kill_cases(points), 14)], tmp_path)


@traced
def test_an_error_of_any_call_is_undone_or_recovered(points: list[Point], tmp_path: Path) -> None:
    """Full, broken, read-only and over quota, once and for ever."""
    prove(draw(calls.error_cases(points), 20), tmp_path)


def test_short_writes_make_no_difference(tmp_path: Path) -> None:
    """Every write takes a third of what it is given."""
    prove(draw(calls.short_write_cases(26), 4), tmp_path)


@traced
def test_recovery_that_is_killed_itself_is_recovered(points: list[Point], tmp_path: Path) -> None:
    """Killed in the middle, and the recovery killed too."""
    row = prove(calls.double_cases(draw_points(points, 6), tmp_path, 8, SEED), tmp_path)
    assert row.doubles == row.points


def draw_points(points: list[Point], count: int) -> list[Point]:
    return random.Random(SEED).sample(points, count)


def test_a_frame_that_is_cut_torn_lost_repeated_or_late_does_no_harm(tmp_path: Path) -> None:
    """Sixteen pairs of a request and what becomes of its frame."""
    prove(draw(frames.frame_cases(), 16), tmp_path)


@traced
def test_a_guard_that_is_killed_or_stopped_at_any_call_leaves_a_host_that_recovers(tmp_path: Path) -> None:
    """While it undoes what a silent controller left."""
    base = tmp_path / "trace."
    expiring = guards.trace_guard(base, expiring=True)
    table.clean_up(base)
    prove(draw(guards.guard_cases([], expiring), 8), tmp_path)


@traced
def test_a_guard_whose_disk_fails_tries_again_at_once(tmp_path: Path) -> None:
    """Its first record once the tree is its own; then every call of the kind, and all of them for ever."""
    base = tmp_path / "trace."
    expiring = guards.trace_guard(base, expiring=True)
    table.clean_up(base)
    cases = guards.error_cases([], [point for point in expiring if point.is_file])
    first = [case for case in cases if "EIO at pwrite64#3 " in case.label]
    assert len(first) == 1
    prove([*first, *draw(cases, 4)], tmp_path)


@traced
@pytest.mark.parametrize("kind", states.PARTS, ids=lambda kind: kind.__name__.lower())
def test_what_outlasts_a_transaction_is_recovered(kind: type[states.Part], tmp_path: Path) -> None:
    """Killed while a change is kept or taken back, while the tree is copied, while ports and GPUs are claimed."""
    base = tmp_path / "trace."
    points = states.trace_part(base, kind)
    table.clean_up(base)
    prove(draw(states.state_cases({kind: points}), 6), tmp_path)


@pytest.mark.parametrize("goes_on", ["before", "after"])
def test_a_launch_that_was_given_up_is_not_carried_out_later(tmp_path: Path, goes_on: str) -> None:
    """A guard that hung while it was asked to launch must not start the server when it goes on."""
    prove([Case("frozen", guards.freeze, ("launch", goes_on))], tmp_path)


@traced
def test_an_agent_that_hangs_at_any_call_is_undone_when_its_lease_ends(points: list[Point], tmp_path: Path) -> None:
    """By the guard, before anybody comes."""
    prove(draw(guards.stop_cases(points), 5), tmp_path)


def test_silence_in_any_state_is_undone(tmp_path: Path) -> None:
    """Agent killed, stopped or not asked, guard alive or killed."""
    prove(draw(guards.silence_cases(), 6), tmp_path)


def test_what_a_third_party_did_survives(tmp_path: Path) -> None:
    """Edited, replaced, deleted, chmodded, re-linked: held, or left as it is; never lost."""
    prove([*draw(parties.meddle_cases(), 14), *draw(parties.at_last_cases(), 3)], tmp_path)


@pytest.mark.parametrize("kind", ["tmpfs", "ext4"])
@pytest.mark.parametrize("step", ["apply", "revert"])
def test_a_full_disk_keeps_no_revert_from_going_through(tmp_path: Path, kind: str, step: str) -> None:
    """With not one byte free."""
    reason = disks.why_not(kind)
    if reason is not None:
        pytest.skip(reason)
    prove([Case("full", environment.full_disk, (kind, step))], tmp_path)


def test_a_reboot_ends_the_lease(tmp_path: Path) -> None:
    """Another boot id: whoever comes recovers at once."""
    reason = disks.why_not("tmpfs")
    if reason is not None:
        pytest.skip(reason)
    prove([case for case in environment.reboot_cases([]) if "apply" in case.label or "launch" in case.label], tmp_path)


def test_one_controller_at_a_time(tmp_path: Path) -> None:
    """A second one is turned away, the first one may not write late, and of four at once one wins."""
    prove([*draw(environment.second_cases(), 4), Case("race", environment.race)], tmp_path)


def test_no_server_outlives_its_launch(tmp_path: Path) -> None:
    """Those that ignore, fork, daemonize; and strangers are left alone."""
    prove([*draw(servers.server_cases(), 8), Case("the same pid again", servers.same_pid_again)], tmp_path)


@traced
@pytest.mark.parametrize("split", [False, True])
def test_a_power_cut_on_ext4_is_recovered(tmp_path: Path, split: bool) -> None:
    """Five calls, with the journal on the same and on another file system."""
    reason = disks.why_not("ext4")
    if reason is not None:
        pytest.skip(reason)
    row = power.carry_out("ext4", split, draw_points(power.trace(tmp_path), 5), tmp_path)
    assert row.is_good, (row.failures, row.not_reached)


@pytest.mark.parametrize("kind", simulator.KINDS, ids=lambda kind: kind.name)
def test_a_disk_that_forgets_anything_not_synced_loses_nothing(kind: simulator.Kind) -> None:
    """Hundreds of images of a whole story; cut at once, or while what a kill left in memory is recovered."""
    row = simulator.Cuts(kind, samples=1, seed=SEED, stride=12).carry_out("simulated")
    assert row.is_good, row.failures[:5]
    assert row.points > 500


def test_a_silent_cut_is_undone_within_the_lease_and_a_second(tmp_path: Path) -> None:
    """With a server running, and nobody who says anything."""
    times_s: list[float] = []
    prove(deadman.deadman_cases(1, times_s), tmp_path)
    assert deadman.LEASE_S - 0.5 < times_s[0] <= deadman.LEASE_S + deadman.SLACK_S


def test_original_code_is_imported_after_recovery(tmp_path: Path) -> None:
    """A same-size edit ran with our bytecode prefix; a fresh interpreter runs the old code, with it and without."""

    def run(base: Path) -> Verdict:
        scene = Scene(base).plant()
        agent = guards.begin(scene)
        agent.kill()
        verdict = recover(scene)
        assert imports_old_code(scene)
        return verdict

    prove([Case("imports", run)], tmp_path)


@pytest.mark.parametrize("nth", [0.2, 0.45, 0.7])
def test_a_controller_that_dies_anywhere_leaves_a_host_and_a_ledger_that_recover(tmp_path: Path, nth: float) -> None:
    """The whole stack on the lab, ended with `os._exit` at a commit or a request."""
    count: Callable[[Path], list[str]] = controllers.count_points
    labels = count(tmp_path / "count.")
    table.clean_up(tmp_path / "count.")
    number = int(len(labels) * nth) + 1
    prove([Case(labels[number - 1], controllers.die_at, (number,))], tmp_path)


def test_the_harness_itself_sees_a_dirty_host(tmp_path: Path) -> None:
    """A file that was changed behind its back is counted as a difference and as a lie."""

    def run(base: Path) -> Verdict:
        scene = Scene(base).plant()
        (scene.root / "a.py").write_bytes(b"changed\n")
        return recover(scene)

    row = table.carry_out("sample", [Case("dirty", run)], tmp_path, workers=1)
    assert (row.lies, row.differs) == (1, 1)
