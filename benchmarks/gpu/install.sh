#!/usr/bin/env bash
# Usage: install.sh [DEST]
# On a machine whose python3 has torch for CUDA and which reaches no network, make
#   DEST/venv     whose python starts SGLang 0.5.10.post1,
#   DEST/own      whose python runs this project from the checkout that was carried,
#   DEST/models   tiny and mid.
# DEST defaults to /tmp/rig. Takes some seconds; a finished DEST is left as it is.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dest=${1:-/tmp/rig}
[ ! -e "$dest/installed" ] || exit 0

purelib() { "$1" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])'; }
unpack() { python3 -m pip install -q --no-index --no-deps --no-compile --no-cache-dir --target "$@"; }

base=$(purelib python3)
python3 -m venv --without-pip "$dest/venv"
site=$(purelib "$dest/venv/bin/python")
unpack "$site" "$here"/wheels-rig/*.whl
cp -r "$here/stubs/." "$site/"
cp "$site/bin/py-spy" "$dest/venv/bin/"
# What the machine already has (torch, triton, transformers …) comes after the packages of the venv.
echo "import site; site.addsitedir('$base')" >"$site/zz_base.pth"
# flashinfer is a stand-in: SGLang must not choose it.
echo "import os; os.environ.setdefault('SGLANG_IS_FLASHINFER_AVAILABLE', 'false')" >"$site/rig_env.pth"
# SGLang looks for the version of its kernel package at start.
mkdir "$site/sglang_kernel-0.4.1.dist-info"
printf 'Metadata-Version: 2.1\nName: sglang-kernel\nVersion: 0.4.1\n' >"$site/sglang_kernel-0.4.1.dist-info/METADATA"

python3 -m venv --without-pip "$dest/own"
own=$(purelib "$dest/own/bin/python")
unpack "$own" "$here"/wheels-own/*.whl
echo "$here/checkout" >"$own/checkout.pth"

cp -r "$here/models" "$dest/"
touch "$dest/installed"
