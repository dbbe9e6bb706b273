#!/usr/bin/env bash
# Run the suite on every CPython from 3.10 that this machine has, each in its own
# environment.
set -euo pipefail
cd "$(dirname "$0")/.."
found=()
for minor in 10 11 12 13 14 13t 14t; do
  for candidate in "$(command -v "python3.$minor" || true)" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3."$minor".*/bin/python3; do
    if [ -x "$candidate" ] && "$candidate" -c 'import venv' 2>/dev/null; then
      found+=("3.$minor=$candidate")
      break
    fi
  done
done
if [ "${#found[@]}" -eq 0 ]; then
  echo "no CPython from 3.10 found" >&2
  exit 1
fi
for entry in "${found[@]}"; do
  echo "== CPython ${entry%%=*}"
  make test PYTHON="${entry#*=}" VENV=".venv-${entry%%=*}"
done
echo "passed on: ${found[*]%%=*}"
