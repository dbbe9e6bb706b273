#!/bin/sh
# Fuzz each harness with a core that libFuzzer can see into, under AddressSanitizer and
# UndefinedBehaviorSanitizer. Without clang the core is the usual one, and only what is
# written in Python guides the fuzzer. PY names the interpreter, HARNESSES which; the
# arguments are those of guided.py, such as --seconds 60.
set -eu
cd "$(dirname "$0")/../.."
out=out/fuzz
mkdir -p "$out"
run() { PYTHONPATH=. $PY tests/fuzz/guided.py "$@"; }
if command -v clang >/dev/null; then
  CC=clang LDSHARED="clang -shared" TOKCACHE_COVERAGE=1 TOKCACHE_SANITIZE=1 \
    $PY setup.py --quiet build --build-base "$out/build" --build-lib "$out/lib" \
    2>"$out/build.log" || { cat "$out/build.log" >&2; exit 1; }
  preload=$($PY -c "import atheris; print(atheris.path())")/asan_with_fuzzer.so
  # Not pymalloc: texts then have bounds that AddressSanitizer knows. The interpreter
  # itself leaks at its end.
  run() {
    LD_PRELOAD="$preload" PYTHONPATH="$out/lib:." PYTHONMALLOC=malloc \
      ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=32 \
      UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
      $PY tests/fuzz/guided.py "$@"
  }
else
  echo "no clang: the compiled core is fuzzed as it is, its branches unseen"
fi
for harness in ${HARNESSES:-scan trie encode}; do
  echo "harness: $harness"
  run "$harness" "$@"
done
