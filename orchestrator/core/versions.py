"""Versions and conditions on them, as PEP 440 orders them. What is installed is judged as it is, pre-releases too."""

from __future__ import annotations

import re
from dataclasses import dataclass

_VERSION = re.compile(
    r"""v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)
    (?:[-_.]?(?P<pre>alpha|beta|preview|pre|a|b|c|rc)[-_.]?(?P<pre_n>\d*))?
    (?:-(?P<post_bare>\d+)|[-_.]?(?P<post>post|rev|r)[-_.]?(?P<post_n>\d*))?
    (?:[-_.]?(?P<dev>dev)[-_.]?(?P<dev_n>\d*))?
    (?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?""",
    re.VERBOSE | re.IGNORECASE,
)
_CONDITION = re.compile(r"(~=|===|==|!=|<=|>=|<|>)\s*(\S+)")
_PRE = {"alpha": "a", "beta": "b", "preview": "rc", "pre": "rc", "c": "rc"}

Key = tuple[tuple[int | str, ...], ...]


class BadVersion(ValueError):
    """Text that is no version, or no condition on one."""


@dataclass(frozen=True)
class Version:
    """A parsed version. Compare by `key`; `public` leaves the local part (`+cu128`) out."""

    epoch: int
    release: tuple[int, ...]
    pre: tuple[str, int] | None
    post: int | None
    dev: int | None
    local: tuple[int | str, ...]

    @property
    def base(self) -> Version:
        return Version(self.epoch, self.release, None, None, None, ())

    @property
    def public(self) -> Version:
        return Version(self.epoch, self.release, self.pre, self.post, self.dev, ())

    @property
    def key(self) -> Key:
        """Sorts dev < pre < final < post; trailing zeros of the release do not count."""
        release = list(self.release)
        while len(release) > 1 and release[-1] == 0:
            release.pop()
        if self.pre is not None:
            pre: tuple[int | str, ...] = (0, *self.pre)
        else:
            is_bare_dev = self.post is None and self.dev is not None
            pre = (-1,) if is_bare_dev else (1,)
        post = (-1,) if self.post is None else (self.post,)
        dev = (1,) if self.dev is None else (0, self.dev)
        local = tuple(p for part in self.local for p in ((1, part, "") if isinstance(part, int) else (0, 0, part)))
        return ((self.epoch,), tuple(release), pre, post, dev, local)


def parse_version(text: str) -> Version:
    """Raises `BadVersion`."""
    match = _VERSION.fullmatch(text.strip())
    if match is None:
        raise BadVersion(f"{text!r} is not a version")
    pre = None
    if match["pre"]:
        word = match["pre"].lower()
        pre = (_PRE.get(word, word), int(match["pre_n"] or 0))
    post = None
    if match["post"] or match["post_bare"]:
        post = int(match["post_bare"] or match["post_n"] or 0)
    local = re.split(r"[-_.]", match["local"].lower()) if match["local"] else []
    return Version(
        int(match["epoch"] or 0),
        tuple(int(part) for part in match["release"].split(".")),
        pre,
        post,
        int(match["dev_n"] or 0) if match["dev"] else None,
        tuple(int(part) if part.isdigit() else part for part in local),
    )


def satisfies(version: str, conditions: str) -> bool:
    """Whether `version` meets all of the conditions, such as `>=0.5.22,<0.6`; `*` and nothing are met by any.

    Raises `BadVersion` for text that is neither.
    """
    wanted = [part.strip() for part in conditions.split(",")]
    return all(_meets(version, part) for part in wanted if part not in ("", "*"))


def _meets(text: str, condition: str) -> bool:
    match = _CONDITION.fullmatch(condition)
    if match is None:
        raise BadVersion(f"{condition!r} is not a condition such as '>=0.5.22' or '==1.2.*'")
    sign, wanted_text = match.groups()
    if sign == "===":
        return text.strip().lower() == wanted_text.lower()
    version = parse_version(text)
    if wanted_text.endswith(".*"):
        if sign not in ("==", "!="):
            raise BadVersion(f"{condition!r}: '.*' goes with == and != only")
        return _has_prefix(version, parse_version(wanted_text[:-2])) == (sign == "==")
    wanted = parse_version(wanted_text)
    if sign == "~=":
        if len(wanted.release) < 2:
            raise BadVersion(f"{condition!r}: ~= needs two numbers at least")
        prefix = Version(wanted.epoch, wanted.release[:-1], None, None, None, ())
        return version.public.key >= wanted.key and _has_prefix(version, prefix)
    return _compare(version, sign, wanted)


def _compare(version: Version, sign: str, wanted: Version) -> bool:
    # A local part counts only where the condition names one.
    plain = version if wanted.local else version.public
    if sign in ("==", "!="):
        return (plain.key == wanted.key) == (sign == "==")
    if sign == ">=":
        return version.public.key >= wanted.key
    if sign == "<=":
        return version.public.key <= wanted.key
    if wanted.dev is None and sign == "<":
        return version.public.key < wanted.key and not _is_pre_of(version, wanted)
    if wanted.dev is None and sign == ">":
        return version.public.key > wanted.key and not _is_post_of(version, wanted)
    return version.public.key < wanted.key if sign == "<" else version.public.key > wanted.key


def _is_pre_of(version: Version, final: Version) -> bool:
    """`<1.2` does not mean 1.2rc1, and `<1.2.post1` not 1.2.post1.dev0."""
    if final.pre is not None or version.base.key != final.base.key:
        return False
    if final.post is not None:
        return version.dev is not None and (version.pre, version.post) == (None, final.post)
    return version.pre is not None or (version.dev is not None and version.post is None)


def _is_post_of(version: Version, earlier: Version) -> bool:
    """`>1.2` does not mean 1.2.post1."""
    if earlier.post is not None or version.post is None:
        return False
    return Version(version.epoch, version.release, version.pre, None, None, ()).key == earlier.key


def _has_prefix(version: Version, prefix: Version) -> bool:
    length = len(prefix.release)
    padded = (version.release + (0,) * length)[:length]
    return version.epoch == prefix.epoch and padded == prefix.release
