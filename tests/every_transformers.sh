#!/usr/bin/env bash
# Run the tests of accelerated tokenizers against several versions of `transformers`, each
# in its own environment. VERSIONS="5.25.0" tests/every_transformers.sh tries others than
# those below: the last one of version 4, and one of version 5.
set -euo pipefail
cd "$(dirname "$0")/.."
read -ra versions <<<"${VERSIONS:-4.57.6 5.24.0}"
for version in "${versions[@]}"; do
  echo "== transformers $version"
  venv=".venv-transformers-$version"
  make build VENV="$venv" REQUIRE="transformers==$version"
  "$venv/bin/python" -m pytest -q tests/test_transformers*.py
done
echo "passed on: ${versions[*]}"
