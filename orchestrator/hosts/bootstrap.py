"""What starts the agent on a host: one argument of `python3 -c`, under 1 kB, and the marker it answers with.

The argument holds no quote, backslash, newline or exclamation mark, so that sh, bash, zsh, fish and csh read it alike
between single quotes; hence the compressed form. It runs on Python 3.8 and newer, and says so on older ones (2.7 too).
"""

from __future__ import annotations

import binascii
import re
import zlib

MARKER_LIMIT = 1 << 20
"""Bytes of banners, message of the day and noisy shell start-up files that are skipped before the marker."""

SOURCE = r"""
import sys
if sys.version_info<(3,8):sys.exit("too old: python %d.%d"%sys.version_info[:2])
import hashlib,os,select
D,L,N=sys.argv[1:]
def fits(b):return hashlib.sha256(b).hexdigest()==D
def store(d):
 try:
  with open(d+N,"wb")as f:f.write(B);f.flush();os.fsync(f)
  os.rename(d+N,d+D)
  return 1
 except OSError:os.unlink(d+N)
def each(do):
 c=os.path.expanduser(os.environ.get("XDG_CACHE_HOME")or"~/.cache")
 for d in c+"/orchestrator/","/tmp/orchestrator-%d/"%os.getuid():
  try:
   os.makedirs(d,448,True)
   s=os.lstat(d[:-1])
   if s[4]==os.getuid() and s[0]&61503==16384 and do(d):return d+D
  except OSError:continue
P=each(lambda d:fits(open(d+D,"rb").read()))
os.write(1,b"\n\0ORC1 %s %s\n"%(N.encode(),P and b"have"or b"need"))
if not P:
 B=b""
 while len(B)<int(L):
  select.select([0],[],[])
  try:c=os.read(0,int(L)-len(B))
  except BlockingIOError:continue
  if not c:break
  B+=c
 if not fits(B):sys.exit("bad archive: %d"%len(B))
 P=each(store)
 if not P:
  f=os.memfd_create(D);os.write(f,B);P="/proc/self/fd/%d"%f
sys.path.insert(0,P)
import start
start.start(P)
"""
"""Modes are decimal: 448 is 0700, and `[0]&61503==16384` reads "a directory that nobody else may enter"; others are
not used. An archive that no place can keep (full, read-only) runs from memory. The answer is one write, shorter than
PIPE_BUF.
"""


def program() -> str:
    """The argument after `python3 -I -S -c`. It begins with a word for whoever reads the process list."""
    deflate = zlib.compressobj(9, wbits=-15)  # raw: no header, no checksum
    packed = deflate.compress(SOURCE.strip().encode()) + deflate.flush()
    text = binascii.b2a_base64(packed, newline=False).decode()
    return f'"orchestrator";import binascii as b,zlib;exec(zlib.decompress(b.a2b_base64("{text}"),-15))'


def start_argv(python: str, digest: str, length: int, nonce: str) -> list[str]:
    """The end of every route: interpreter, bootstrap, and what it is to look for."""
    return [python, "-I", "-S", "-c", program(), digest, str(length), nonce]


def marker(nonce: str) -> re.Pattern[bytes]:
    """Matches the bootstrap's answer; group 1 is `have` or `need`."""
    return re.compile(rb"\n\0ORC1 " + re.escape(nonce.encode()) + rb" (have|need)\n")
