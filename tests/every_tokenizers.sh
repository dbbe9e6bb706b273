#!/usr/bin/env bash
# Run the suite against several versions of `tokenizers`, each in its own environment.
# VERSIONS="0.24.0" tests/every_tokenizers.sh tries others than those below: the oldest
# one that is supported, and the last one of each series since.
set -euo pipefail
cd "$(dirname "$0")/.."
read -ra versions <<<"${VERSIONS:-0.20.3 0.21.4 0.22.2 0.23.3}"
for version in "${versions[@]}"; do
  echo "== tokenizers $version"
  make test VENV=".venv-tokenizers-$version" REQUIRE="tokenizers==$version"
done
echo "passed on: ${versions[*]}"
