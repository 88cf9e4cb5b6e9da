"""The journal: durable records, torn tails, full disks, compaction."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent.errors import AgentError
from orchestrator.agent.fs import Fs
from orchestrator.agent.journal import CAPACITY_BYTES, SECTOR_BYTES, Journal, decode, encode
from tests.agent.scene import FaultFs, Kill

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def open_journal(tmp_path: Path, fs: Fs | None = None) -> Journal:
    return Journal.open(fs or Fs(), f"{tmp_path}/journal")


def kinds(journal: Journal) -> list[str]:
    return [record.kind for record in journal.records()]


def test_records_come_back_in_order_with_rising_numbers(tmp_path: Path) -> None:
    """What one process appended, the next one reads."""
    journal = open_journal(tmp_path)
    assert [journal.append("A", {"n": 1}), journal.append("B", {"path": "odd\udcff\n"})] == [1, 2]
    journal.close()
    again = open_journal(tmp_path)
    assert [tuple(record) for record in again.records()] == [(1, "A", {"n": 1}), (2, "B", {"path": "odd\udcff\n"})]
    assert again.append("C", {}) == 3
    again.close()


def test_the_file_is_preallocated(tmp_path: Path) -> None:
    """A record needs no new blocks."""
    open_journal(tmp_path).close()
    found = os.stat(f"{tmp_path}/journal")
    assert found.st_size == CAPACITY_BYTES
    assert found.st_blocks * 512 >= CAPACITY_BYTES


@given(st.text(min_size=1), st.dictionaries(st.text(), JSON), st.integers(1, 2**40))
def test_a_record_survives_encoding(kind: str, data: dict[str, object], seq: int) -> None:
    """Any JSON comes back; the frame is whole sectors."""
    raw = encode(seq, kind, data)
    assert len(raw) % SECTOR_BYTES == 0
    assert decode(raw) == ((seq, kind, data), len(raw))


def test_a_record_torn_at_any_byte_is_ignored(tmp_path: Path) -> None:
    """The tail that was being written when the machine stopped is as if it had never been; its place is used again."""
    journal = open_journal(tmp_path)
    journal.append("FIRST", {})
    start = journal.used_bytes
    journal.append("SECOND", {"text": "x" * 700})
    end = journal.used_bytes
    journal.close()
    whole = Path(f"{tmp_path}/journal").read_bytes()[: end + SECTOR_BYTES]
    for cut in range(start, start + 800):
        Path(f"{tmp_path}/journal").write_bytes(whole[:cut] + bytes(len(whole) - cut))
        torn = Journal(Fs(), f"{tmp_path}/journal", os.open(f"{tmp_path}/journal", os.O_RDWR))
        is_whole = not any(whole[cut:end])
        assert kinds(torn) == (["FIRST", "SECOND"] if is_whole else ["FIRST"]), cut
        torn.close()


@pytest.mark.parametrize("sector", [1, 2])
def test_a_record_with_a_lost_sector_is_ignored(tmp_path: Path, sector: int) -> None:
    """The checksum covers all sectors: one that did not reach the disk spoils the record."""
    journal = open_journal(tmp_path)
    journal.append("FIRST", {})
    at = journal.used_bytes + sector * SECTOR_BYTES
    journal.append("SECOND", {"text": "x" * 1200})
    journal.close()
    with open(f"{tmp_path}/journal", "r+b") as file:
        file.seek(at)
        file.write(bytes(SECTOR_BYTES))
    again = open_journal(tmp_path)
    assert kinds(again) == ["FIRST"]
    again.append("THIRD", {})
    again.close()
    last = open_journal(tmp_path)
    assert kinds(last) == ["FIRST", "THIRD"]
    last.close()


def test_a_changed_byte_ends_the_journal(tmp_path: Path) -> None:
    """Bit rot is not taken for a record."""
    journal = open_journal(tmp_path)
    journal.append("FIRST", {"text": "aaaa"})
    journal.close()
    raw = bytearray(Path(f"{tmp_path}/journal").read_bytes())
    raw[raw.index(b"aaaa")] ^= 1
    Path(f"{tmp_path}/journal").write_bytes(bytes(raw))
    again = open_journal(tmp_path)
    assert kinds(again) == []
    again.close()


def test_a_failed_append_can_be_repeated(tmp_path: Path) -> None:
    """After an I/O error the record takes the same place and number."""
    fs = FaultFs()
    journal = open_journal(tmp_path, fs)
    fs.at, fs.error = len(fs.calls) + 3, errno.EIO  # the sync, after that of the directory and the write
    with pytest.raises(OSError):
        journal.append("A", {})
    assert journal.append("B", {}) == 1
    journal.close()
    again = open_journal(tmp_path)
    assert kinds(again) == ["B"]
    again.close()


def test_no_room_is_refused_with_nothing_left(tmp_path: Path) -> None:
    """A new journal on a full disk: a clear word, and no file."""
    with pytest.raises(AgentError, match="no room for the journal") as caught:
        open_journal(tmp_path, FaultFs(2, errno.ENOSPC))
    assert caught.value.kind == "refused"
    assert os.listdir(tmp_path) == []


def test_no_room_to_grow_is_refused_and_the_journal_goes_on(tmp_path: Path) -> None:
    """What was preallocated stays usable."""
    fs = FaultFs()
    journal = open_journal(tmp_path, fs)
    fs.at, fs.error = len(fs.calls) + 2, errno.ENOSPC  # after the sync of the directory
    with pytest.raises(AgentError) as caught:
        journal.append("BIG", {"text": "x" * 2 * CAPACITY_BYTES})
    assert caught.value.kind == "refused"
    assert journal.append("SMALL", {}) == 1
    journal.close()


def test_it_grows_for_a_record_larger_than_itself(tmp_path: Path) -> None:
    """A change of thousands of files fits."""
    journal = open_journal(tmp_path)
    journal.append("BIG", {"text": "x" * 3 * CAPACITY_BYTES})
    journal.close()
    again = open_journal(tmp_path)
    assert kinds(again) == ["BIG"]
    again.close()


def test_compaction_keeps_what_it_is_told_and_counts_on(tmp_path: Path) -> None:
    """A fresh file under the same name."""
    journal = open_journal(tmp_path)
    for _ in range(5):
        journal.append("OLD", {})
    journal.compact([("PAST", {"n": 5})])
    assert journal.append("NEW", {}) == 7
    journal.close()
    again = open_journal(tmp_path)
    assert [(record.seq, record.kind) for record in again.records()] == [(6, "PAST"), (7, "NEW")]
    again.close()


@pytest.mark.parametrize("error", [None, errno.EIO, errno.ENOSPC])
def test_compaction_cut_short_leaves_the_old_or_the_new_journal(tmp_path: Path, error: int | None) -> None:
    """A kill or an error at every call; what is appended afterwards is not lost."""
    for at in range(1, 20):
        folder = tmp_path / str(at)
        folder.mkdir()
        fs = FaultFs()
        journal = open_journal(folder, fs)
        journal.append("OLD", {})
        fs.at, fs.error = len(fs.calls) + at, error
        has_failed = False
        try:
            journal.compact([("PAST", {})])
        except (Kill, OSError, AgentError):
            has_failed = True
            if error is not None:
                journal.append("AFTER", {})
        is_over = len(fs.calls) < fs.at
        journal.close()
        again = open_journal(folder)
        assert kinds(again) in [[first, *["AFTER"] * (has_failed and error is not None)] for first in ("OLD", "PAST")]
        again.close()
        assert os.listdir(folder) == ["journal"]
        if is_over:
            return
    pytest.fail("no end of calls")
