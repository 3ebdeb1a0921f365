#!/bin/sh
# A Python environment of Hearth's own in build/venv. Usage: sh tools/venv.sh [REQUIREMENTS]; does nothing when it is as wanted.
set -eu
cd "$(dirname "$0")/.."
venv=build/venv

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
	echo "Making a Python environment in $venv"
	rm -rf "$venv"
	mkdir -p build
	python3 -m venv "$venv" || {
		echo "tools/venv.sh: python3 -m venv failed; on Debian: 'make setup', or apt-get install python3-venv" >&2
		exit 1
	}
fi

[ $# -gt 0 ] || exit 0
stamp=$venv/.$(basename "$1")
if ! cmp -s "$1" "$stamp"; then
	echo "Installing $1 into $venv"
	"$venv/bin/python" -m pip install -q --disable-pip-version-check --require-hashes --no-deps -r "$1"
	cp "$1" "$stamp"
fi
