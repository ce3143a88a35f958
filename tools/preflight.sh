#!/bin/sh
# Says what installing needs and stops with one sentence where something is missing.
set -eu
python=${PYTHON:-python3}
venv=${1:-.venv}

fail() { echo "make install: $1" >&2; exit 1; }

echo "Installing into $venv: SGLang with PyTorch, about 11 GB on disk and 3 to 10 minutes;"
echo "the model for demo and tests adds 1.3 GB (2.9 GB while it is fetched); serving needs 6 GB of memory."
echo "Python 3.11 or newer with its headers and venv, and a C++ compiler (hnswlib is built from source), must be there."

command -v "$python" >/dev/null 2>&1 || fail "$python was not found; install Python 3.11 or newer (apt install python3)"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
    || fail "$("$python" --version) is too old; install Python 3.11 or newer and run make PYTHON=/path/to/it"
"$python" -c 'import venv, ensurepip' 2>/dev/null \
    || fail "this Python cannot make a venv; install it (apt install python3-venv)"
command -v "${CXX:-c++}" >/dev/null 2>&1 || command -v g++ >/dev/null 2>&1 \
    || fail "no C++ compiler was found and hnswlib is built from source; install one (apt install g++)"
header=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')/Python.h
[ -f "$header" ] || fail "the Python headers are missing ($header); install them (apt install python3-dev)"

# A warm venv needs no more space.
if [ ! -x "$venv/bin/sglang" ]; then
    free_mb=$(df -Pm . | awk 'NR == 2 { print $4 }')
    [ "$free_mb" -ge 16000 ] || fail "this folder has $free_mb MB free and installing needs 16000 MB"
fi
memory_mb=$(awk '/MemTotal/ { print int($2 / 1024) }' /proc/meminfo 2>/dev/null || echo 99999)
[ "$memory_mb" -ge 6000 ] || echo "Warning: this machine has $memory_mb MB of memory; serving the model needs about 6000 MB." >&2
