"""From text to lines: peel off what collectors and loggers put in front, and keep who wrote what, how loud, and when.

Log collectors (docker compose, journald, kubectl, MPI) wrap loggers (SGLang, vLLM, torch, NCCL, ollama, …), so
prefixes are peeled one after another until none fits. Line numbers count newlines only: a carriage return redraws a
progress bar on the same line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

LEVELS = {
    "T": "INFO",
    "D": "INFO",
    "I": "INFO",
    "V": "INFO",
    "N": "INFO",
    "TRACE": "INFO",
    "DEBUG": "INFO",
    "INFO": "INFO",
    "NOTICE": "INFO",
    "VERBOSE": "INFO",
    "W": "WARNING",
    "WARN": "WARNING",
    "WARNING": "WARNING",
    "E": "ERROR",
    "F": "ERROR",
    "C": "ERROR",
    "ERROR": "ERROR",
    "ERR": "ERROR",
    "FATAL": "ERROR",
    "CRITICAL": "ERROR",
    "INTERNAL_ERROR": "ERROR",
}
_LEVEL = r"TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|ERR|FATAL|CRITICAL"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the log.

    `number` counts from 1. `raw` is the line as it stands; `text` the message behind all prefixes.
    `writer` tells processes apart ("" where the line does not say). `rank` is the label of the rank, if any.
    `level` is INFO, WARNING, ERROR or "". `stamp` is the time as printed and `clock` the format it is in, so that
    only like is compared with like. `place` is the source location that the logger printed. `starts` says that a
    logger began a record here.
    """

    number: int
    raw: str
    text: str
    writer: str
    rank: str | None
    level: str
    stamp: str
    clock: str
    place: str
    starts: bool


_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\n]*\x07|\x1b[()][A-B0-2]")
_BAR = re.compile(r"^[^|\[]{0,80}?\d+%[^|]{0,20}\|[^|]*\|[^\[\n]{0,40}\[[^\]\n]*\]")
_ELISION = re.compile(r"^\s*\[?\s*(?:…|\.\.\.)\s*\d+ (?:more )?lines?\b.*(?:…|\.\.\.)?\]?\s*$")

_COMPOSE = re.compile(r"^[A-Za-z0-9][\w.-]*\s*\| ?")
_STAMP = re.compile(
    r"^(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?) (?:std(?:out|err) [FP] )?"
    rf"(?:\s*(?P<level>{_LEVEL})\s+(?:(?P<place>[\w.]+(?:::[\w.]+)*): )?)?"
)
_SYSLOG = re.compile(r"^[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ (?P<unit>[\w.@/-]+)(?:\[\d+\])?: ?")
_KUBECTL = re.compile(r"^\[pod/[^\]]+\] ")
_MPI = re.compile(r"^\[\d+,\d+\]<std(?:out|err)>:\s?")
_TORCH_RANK = re.compile(r"^\[(?P<rank>(?:rank|default)\d+)\]:\s?")
_TORCH = re.compile(r"^\[(?P<level>[EWIF])\d{3,4} (?P<stamp>\d\d:\d\d:\d\d\.\d+) (?P<place>[^\]]+)\] ")
_TAG = re.compile(r"^\((?P<tag>[A-Za-z_][\w:.\-]*|pid=\d+)(?P<rest>[ ,][^()]{0,120})?\)(?:\x20|$)")
_VLLM = re.compile(
    rf"^(?P<level>{_LEVEL}) (?P<stamp>\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)\s+"
    r"(?:\[(?P<place>[\w./<>-]+:\d+)\]|(?P<place2>[\w./-]+:\d+)\]) ?"
)
_SGLANG = re.compile(r"^\[(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?)(?P<rank>(?: [A-Z][A-Z_]*\d+)*)\] ")
_LEVEL_PLACE = re.compile(rf"^(?P<level>{_LEVEL}) (?P<place>[\w./-]+:\d+): ")
_UVICORN = re.compile(rf"^(?P<level>{_LEVEL}):\s+")
_ROOT_LOGGER = re.compile(rf"^(?P<level>{_LEVEL}):(?P<place>[\w.]+):")
_PYTHON = re.compile(
    r"^\[?(?P<stamp>\d{4}[-/]\d\d[-/]\d\d \d\d:\d\d:\d\d(?:[.,]\d+)?)\]?\s*[-|:]?\s*"
    rf"(?:(?P<place>[\w.]+) - )?(?:\[?(?P<level>{_LEVEL})\]?\b\s*[-|:]?\s*)?"
)
_LOGFMT = re.compile(r"^time=(?P<stamp>\S+) level=(?P<level>\w+) (?:source=(?P<place>\S+) )?")
_TRT_CPP = re.compile(r"^\[(?:TensorRT-LLM|TRT)\]\[(?P<level>\w+)\] ")
_TRT_PY = re.compile(
    r"^\[(?P<stamp>\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d)\] \[(?:TRT-LLM|TRT|TensorRT-LLM)\] "
    r"(?:\[(?P<rank>RANK \d+)\] )?\[(?P<level>[A-Z])\] "
)
_NCCL = re.compile(
    r"^(?:\[(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\] )?(?P<proc>[\w.-]+:\d+):\d+ \[(?P<rank>\d+)\] "
    r"(?:(?P<place>[\w./-]+:\d+) )?(?=(?:NCCL|ncclComm|Bootstrap|.{0,40}NCCL) ?)"
)
_DMESG = re.compile(r"^(?:\[dmesg\]\s*)?\[\s*\d+\.\d+\] ")
_DMESG_TIME = re.compile(r"^\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}\] ")
_GLOG = re.compile(r"^(?P<level>[IWEF])\d{4} (?P<stamp>\d\d:\d\d:\d\d\.\d+)\s+\d+ (?P<place>[\w./-]+:\d+)\] ")
_RAY = re.compile(
    r"^\[(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+) (?P<level>[IWEFCD]) \d+ \d+\] "
    r"(?:\([\w-]+\) )?(?:(?P<place>[\w./-]+:\d+): )?"
)
_DOCKER_JSON = re.compile(r'^\{"log":"(?P<log>(?:[^"\\]|\\.)*)"')

_JSON_LOG = re.compile(
    r'^\{"(?:time|timestamp)":"(?P<stamp>[^"]+)","level":"(?P<level>\w+)",.{0,200}?"(?:message|msg)":"(?P<log>(?:[^"\\]|\\.)*)"'
)
_CHILD = re.compile(r"^\[\d{2,7}\] (?=[a-z_]+: )")

_PEELERS: dict[str, tuple[tuple[str, re.Pattern[str]], ...]] = {
    "[": (
        ("sglang", _SGLANG),
        ("nccl", _NCCL),
        ("torch_rank", _TORCH_RANK),
        ("torch", _TORCH),
        ("trt_cpp", _TRT_CPP),
        ("trt_py", _TRT_PY),
        ("ray", _RAY),
        ("python", _PYTHON),
        ("dmesg", _DMESG),
        ("dmesg", _DMESG_TIME),
        ("mpi", _MPI),
        ("kubectl", _KUBECTL),
        ("child", _CHILD),
    ),
    "(": (("tag", _TAG),),
    "t": (("logfmt", _LOGFMT),),
    "{": (("docker_json", _DOCKER_JSON), ("json_log", _JSON_LOG)),
}
_DIGIT_PEELERS = (("stamp", _STAMP), ("python", _PYTHON))
_CAPITAL_PEELERS = (
    ("vllm", _VLLM),
    ("uvicorn", _UVICORN),
    ("root_logger", _ROOT_LOGGER),
    ("level_place", _LEVEL_PLACE),
    ("glog", _GLOG),
    ("syslog", _SYSLOG),
)
_STARTS = {
    "stamp",
    "torch",
    "vllm",
    "sglang",
    "uvicorn",
    "root_logger",
    "level_place",
    "python",
    "logfmt",
    "trt_cpp",
    "trt_py",
    "nccl",
    "glog",
    "ray",
    "dmesg",
    "json_log",
}
_RANK_IN_TAG = re.compile(r"(?:^|_)((?:DP|PP|TP|EP)\d+)")
_RANK_IN_REST = re.compile(r"\brank=(\d+)")


class _Peeled:
    """What the prefixes of one line said, gathered while they are taken off."""

    __slots__ = ("clock", "level", "place", "rank", "stamp", "starts", "tag", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.tag = self.level = self.stamp = self.clock = self.place = ""
        self.rank: str | None = None
        self.starts = False

    def take(self, kind: str, match: re.Match[str]) -> None:
        groups = match.groupdict()
        self.text = self.text[match.end() :]
        level, stamp = groups.get("level"), groups.get("stamp")
        if kind in ("stamp", "python") and not level:
            return  # a collector's stamp: it says nothing of records
        self.starts = self.starts or kind in _STARTS
        if level:
            self.level = LEVELS.get(level.upper(), "")
        if stamp:
            self.stamp, self.clock = stamp, kind
        if place := groups.get("place") or groups.get("place2"):
            self.place = place
        if rank := groups.get("rank"):
            self.rank = _rank_label(kind, rank.strip()) or self.rank
        if kind == "tag":
            self._take_tag(match)
        elif kind == "nccl":
            self.tag = match["proc"]
        elif kind in ("docker_json", "json_log"):
            self.text = match["log"].replace("\\n", "").replace('\\"', '"').replace("\\t", "\t")

    def _take_tag(self, match: re.Match[str]) -> None:
        self.tag = match[0].strip()
        found = _RANK_IN_TAG.findall(match["tag"])
        in_rest = _RANK_IN_REST.search(match["rest"] or "")
        if found:
            self.rank = next((rank for rank in found if rank.startswith("TP")), found[-1])
        elif in_rest:
            self.rank = f"rank{in_rest[1]}"


def _rank_label(kind: str, rank: str) -> str | None:
    if kind == "sglang":
        labels = rank.split()
        return next((label for label in labels if label.startswith("TP")), labels[-1] if labels else None)
    if kind == "nccl":
        return f"rank{rank}"
    return rank.replace("RANK ", "rank").replace("default", "rank")


def _peel(text: str) -> _Peeled:
    peeled = _Peeled(text)
    for _ in range(7):
        rest = peeled.text
        head = rest[:1]
        peelers: tuple[tuple[str, re.Pattern[str]], ...]
        if head.isdigit():
            peelers = _DIGIT_PEELERS
        elif "A" <= head <= "Z":
            peelers = _CAPITAL_PEELERS
        else:
            peelers = _PEELERS.get(head, ())
        for kind, pattern in peelers:
            match = pattern.match(rest)
            if match and match.end():
                peeled.take(kind, match)
                break
        else:
            if not _peel_outer(peeled):
                break
    return peeled


def _peel_outer(peeled: _Peeled) -> bool:
    """Take off a docker-compose name or an NCCL process head, which begin like ordinary words."""
    head = peeled.text[:60]
    if "NCCL" in peeled.text[:160] and (match := _NCCL.match(peeled.text)):
        peeled.take("nccl", match)
        return True
    if "|" in head and "%|" not in head and not peeled.starts and (match := _COMPOSE.match(peeled.text)):
        peeled.text = peeled.text[match.end() :]
        return True
    return False


def without_colours(text: str) -> str:
    """The text without terminal escapes; lines stay as many as they were."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def _visible(raw: str) -> str:
    """What a terminal would leave standing: the last redraw that is not a bare progress bar, without colours."""
    text = without_colours(raw)
    text = text.rstrip("\r\n ")
    if "\r" in text:
        parts = [part for part in text.split("\r") if part.strip()]
        words = [part for part in parts if not _is_bar(part)]
        text = (words or parts or [""])[-1]
    if "%" in text and (bar := _BAR.match(text)) and bar.end() < len(text):
        behind = text[bar.end() :].lstrip()
        if behind and not behind.startswith(("[A", "\x1b")):
            return behind
    return text


def _is_bar(text: str) -> bool:
    bar = _BAR.match(text)
    return bool(bar and not text[bar.end() :].strip())


def is_elision(text: str) -> bool:
    """Whether the line only says that lines were left out of an excerpt."""
    return "left out" in text or (("…" in text or "..." in text) and bool(_ELISION.match(text)))


def parse_line(number: int, raw: str) -> Line:
    """One physical line, without its newline."""
    peeled = _peel(_visible(raw))
    return Line(
        number,
        raw,
        peeled.text,
        peeled.tag or (peeled.rank or ""),
        peeled.rank,
        peeled.level,
        peeled.stamp,
        peeled.clock,
        peeled.place,
        peeled.starts,
    )


def parse(text: str) -> Iterator[Line]:
    """All lines of a log, numbered from 1."""
    for number, raw in enumerate(text.split("\n"), start=1):
        yield parse_line(number, raw)
