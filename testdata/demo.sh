#!/bin/bash
# Shows hermes-wrap at work: the bundled agent does its job under the profile
# hermes-strict, then turns hostile. Everything it needs is made in temporary
# directories and removed at the end; nothing outside this machine is asked.
#
# Usage: demo.sh BIN [--hermes]
#   BIN       the hermes-wrap binary
#   --hermes  wraps the hermes that is on PATH, instead of the bundled stand-in
# Exit: 0 the agent did its job and every attempt to leave failed, 1 otherwise.
set -u
here=$(cd "$(dirname "$0")" && pwd -P)

[ $# -ge 1 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 1; }

missing=
for program in python3:python3 node:nodejs git:git openssl:openssl; do
  command -v "${program%%:*}" >/dev/null || missing="$missing ${program##*:}"
done
if [ -n "$missing" ]; then
  echo "demo: these programs are missing:$missing" >&2
  echo "demo: install them first, on Debian or Ubuntu with: sudo apt-get install$missing" >&2
  exit 1
fi
[ -x "$1" ] && [ ! -d "$1" ] || { echo "demo: \"$1\" is not a program; build it with: make build" >&2; exit 1; }
python=/usr/bin/python3
[ -x $python ] || python=python3
exec $python "$here/demo/demo.py" "$@"
