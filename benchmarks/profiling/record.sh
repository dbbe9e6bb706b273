# Build with frame pointers and symbols into out/profile, and record hits with perf.
# PY names the interpreter, KINDS what is recorded, SECONDS_EACH how long.
set -eu
cd "$(dirname "$0")/../.."
out=out/profile
TOKCACHE_PROFILE=1 $PY setup.py --quiet build --build-base "$out/build" --build-lib "$out/lib"
command -v perf >/dev/null || { echo "perf is not installed; $out/lib is built" >&2; exit 2; }
# A virtual machine often has no hardware counters; the clock's ticks do as well.
event=cycles
perf stat -e cycles true 2>&1 | grep -q "not supported" && event=cpu-clock
echo "recording $event"
for kind in ${KINDS:-long short wide list fork}; do
  PYTHONPATH="$out/lib:." perf record --quiet --event "$event" --freq 5000 --call-graph fp \
    --output "$out/$kind.data" -- $PY benchmarks/profiling/hit.py "$kind" "${SECONDS_EACH:-3}"
  perf report --input "$out/$kind.data" --stdio --no-children --call-graph none \
    --percent-limit 0.5 2>/dev/null | grep -v '^#' | grep -v '^$' > "$out/$kind.functions.txt"
  perf annotate --input "$out/$kind.data" --stdio --symbol __pyx_f_8tokcache_5_trie_4Trie_walk \
    > "$out/$kind.walk.txt" 2>/dev/null || true
  head -12 "$out/$kind.functions.txt"
done
echo "functions and annotated walks are in $out"
