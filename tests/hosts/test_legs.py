"""Routes and ssh configuration as connections to make."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.core.model import Route
from orchestrator.errors import UsageError
from orchestrator.hosts.legs import Leg, configuration_lookup, plan_legs, split_destination

CONFIG = """
Include {folder}/conf.d/*.conf
Host bastion
    HostName bastion.example.org
    Port 2200
    User jumper
    IdentityFile {folder}/bastion_key
Host inner-*
    HostName 10.0.0.7
    ProxyJump bastion
    UserKnownHostsFile {folder}/one {folder}/two
    IdentitiesOnly yes
    IdentityFile ~/.ssh/inner
    HostKeyAlias inner
Host loop
    ProxyJump loop
Host *
    User everybody
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    folder = tmp_path / "conf.d"
    folder.mkdir()
    (folder / "a.conf").write_text("Host included\n  HostName included.example.org\n")
    path = tmp_path / "config"
    path.write_text(CONFIG.format(folder=tmp_path))
    return path


def legs(config: Path, ssh: str, **fields: object) -> tuple[Leg, ...]:
    route = Route.model_validate({"ssh": ssh, "config": str(config), **fields})
    return plan_legs(route, configuration_lookup(route), "me")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("host", (None, "host", None)),
        ("user@host", ("user", "host", None)),
        ("user@host:22", ("user", "host", 22)),
        ("user@[::1]:22", ("user", "::1", 22)),
        ("fe80::1", (None, "fe80::1", None)),
        ("ssh://a@b:1", ("a", "b", 1)),
    ],
)
def test_destinations(text: str, expected: tuple[str | None, str, int | None]) -> None:
    """User, host and port are told apart, IPv6 with and without brackets."""
    assert split_destination(text) == expected


@pytest.mark.parametrize("text", ["", "-oProxyCommand=x", "user@", "host:port"])
def test_what_is_no_destination_is_refused(text: str) -> None:
    """An option in disguise, or half a destination, is a usage error."""
    with pytest.raises(UsageError):
        split_destination(text)


def test_an_alias_brings_its_host_jump_keys_and_known_hosts(config: Path, tmp_path: Path) -> None:
    """HostName, User, IdentityFile, ProxyJump, HostKeyAlias and several UserKnownHostsFile are followed."""
    bastion, inner = legs(config, "inner-7")
    assert (bastion.host, bastion.port, bastion.user) == ("bastion.example.org", 2200, "jumper")
    assert bastion.keys == (tmp_path / "bastion_key",)
    assert (inner.host, inner.port, inner.user, inner.key_name) == ("10.0.0.7", 22, "everybody", "inner")
    assert inner.keys == (Path("~/.ssh/inner").expanduser(),) and inner.only_these_keys
    assert inner.known_hosts[:2] == (tmp_path / "one", tmp_path / "two")


def test_includes_are_read_and_the_block_around_them_goes_on(config: Path) -> None:
    """`Include` with a pattern works, and what stands behind it does not end up in the included block."""
    assert legs(config, "included")[0].host == "included.example.org"
    assert legs(config, "included")[0].user == "everybody"


def test_the_route_wins_over_the_configuration(config: Path, tmp_path: Path) -> None:
    """user@, port, key, known_hosts and jump of the route replace what the alias says."""
    first, last = legs(
        config, "me2@inner-7", port=2022, key=str(tmp_path / "k"), known_hosts=str(tmp_path / "kh"), jump=("a@b:3",)
    )
    assert (first.user, first.host, first.port) == ("a", "b", 3)
    assert (last.user, last.port, last.keys, last.known_hosts) == ("me2", 2022, (tmp_path / "k",), (tmp_path / "kh",))


def test_tokens_see_what_the_route_says(tmp_path: Path) -> None:
    """%p and %r of a ProxyCommand are the route's port and user, not the defaults."""
    path = tmp_path / "config"
    path.write_text("Host *\n ProxyCommand relay %h %p %r\n")
    assert legs(path, "u@gpu", port=2022)[0].proxy_command == "relay gpu 2022 u"


def test_several_jumps_keep_their_order(config: Path) -> None:
    """Jump hosts are listed outermost first."""
    assert [leg.host for leg in legs(config, "x", jump=("a", "b", "c"))] == ["a", "b", "c", "x"]


def test_a_jump_to_itself_is_refused(config: Path) -> None:
    """A ProxyJump that leads in a circle is a usage error, not an endless loop."""
    with pytest.raises(UsageError, match="itself"):
        legs(config, "loop")


def test_two_ports_are_refused(config: Path) -> None:
    """A port in the destination and another one beside it contradict each other."""
    with pytest.raises(UsageError, match="two ports"):
        legs(config, "a@b:1", port=2)


def test_a_named_configuration_must_exist(tmp_path: Path) -> None:
    """A typing mistake in `config:` is told; only the default file may be missing."""
    with pytest.raises(UsageError, match="no ssh configuration"):
        legs(tmp_path / "missing", "a")


def test_match_exec_is_refused_with_a_way_out(tmp_path: Path) -> None:
    """What cannot be followed is told, never skipped silently, and its command is not run."""
    path = tmp_path / "config"
    path.write_text(f'Match host a exec "touch {tmp_path}/ran"\n  HostName somewhere\n')
    with pytest.raises(UsageError, match="Match exec") as caught:
        legs(path, "a")
    assert caught.value.hint and "config: null" in caught.value.hint
    assert not (tmp_path / "ran").exists()
