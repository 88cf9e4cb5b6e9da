"""Whether the guard outlives the login, by what logind says there. That systemd keeps it is not tried: none runs."""

from __future__ import annotations

import pytest

from orchestrator.hosts.logout import PID, Way, plan_escape
from tests.hosts.test_facts import ABSENT, recorded, said

IN_LOGIN = "0::/user.slice/user-1000.slice/session-3.scope\n"
IN_SERVICE = "0::/system.slice/agent.service\n"


@pytest.mark.parametrize(
    ("logind", "linger", "cgroup", "user", "uid", "way"),
    [
        ("logind-kills", "Linger=no", IN_LOGIN, "me", 1000, Way.NONE),
        ("logind-kills", "Linger=yes", IN_LOGIN, "me", 1000, Way.USER_SCOPE),
        ("logind-kills", "Linger=no", IN_SERVICE, "me", 1000, Way.STAYS),
        ("logind-kills", "Linger=no", IN_LOGIN, "root", 0, Way.STAYS),
        ("logind-keeps", "Linger=no", IN_LOGIN, "me", 1000, Way.STAYS),
    ],
)
def test_the_way_out_of_a_login(logind: str, linger: str, cgroup: str, user: str, uid: int, way: Way) -> None:
    """A lingering user's guard still has to leave the login's scope; one outside of any login stays where it is."""
    outputs = {"logind": said(recorded(logind)), "linger": said(linger), "cgroup": said(cgroup)}
    escape = plan_escape(outputs, user, uid)
    assert escape.way == way
    assert bool(escape.argv) == (way in (Way.USER_SCOPE, Way.SYSTEM_SCOPE))


def test_root_that_is_not_spared_moves_into_the_system() -> None:
    """KillExcludeUsers names others only."""
    outputs = {
        "logind": said("KillUserProcesses=yes\nKillExcludeUsers=anna\n"),
        "linger": said("Linger=no"),
        "cgroup": said(IN_LOGIN),
    }
    escape = plan_escape(outputs, "root", 0)
    assert escape.way is Way.SYSTEM_SCOPE
    assert escape.argv[:2] == ("busctl", "--system")
    assert PID in escape.argv


def test_without_logind_everything_stays() -> None:
    assert plan_escape({"logind": ABSENT, "linger": ABSENT, "cgroup": ABSENT}, "me", 1000).way is Way.STAYS
