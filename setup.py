"""Build the compiled core.

Switches, all read from the environment:

- ``TOKCACHE_DEBUG=1``: no optimisation, bounds checks, C asserts.
- ``TOKCACHE_SANITIZE=1``: Address and UndefinedBehaviour sanitizers.
- ``TOKCACHE_COVERAGE=1``: calls that guide libFuzzer; clang only (``CC=clang``).
- ``TOKCACHE_PROFILE=1``: frame pointers and symbols for perf.
- ``TOKCACHE_NO_POLICY=1``: hits count nothing, to measure what counting costs.
- ``TOKCACHE_PLANTED=1``: also the module whose faults every checker must see.
"""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup


def switched(name: str) -> bool:
    return os.environ.get(f"TOKCACHE_{name}", "") not in ("", "0")


directives: dict[str, bool] = {}
compile_args = ["-O3", "-fno-strict-aliasing", "-Wno-unused-function"]
link_args: list[str] = []
macros = [("CYTHON_FREETHREADING_COMPATIBLE", "1")]

if switched("DEBUG"):
    directives.update(boundscheck=True, wraparound=True, initializedcheck=True)
    compile_args += ["-O0", "-g3", "-UNDEBUG"]
if switched("PROFILE"):
    compile_args += ["-g", "-fno-omit-frame-pointer"]
if switched("NO_POLICY"):
    macros.append(("TOKCACHE_NO_POLICY", "1"))
if switched("SANITIZE"):
    flags = [
        "-O1",  # compiles in half the time
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=undefined",
        "-fno-wrapv",  # the interpreter says -fwrapv, and nothing would overflow
        "-fno-omit-frame-pointer",
        "-g",
    ]
    compile_args += flags
    link_args += flags

if switched("COVERAGE"):
    # Cython adds 0 to the NULL that stands for no arguments, which only clang minds.
    compile_args += [
        "-fsanitize=fuzzer-no-link",
        "-fno-sanitize=pointer-overflow",
        "-g",
    ]

names = [
    f"tokcache.{name}"
    for name in ("_batch", "_counters", "_ids", "_plan", "_scan", "_trie", "_walker")
]
if switched("PLANTED"):
    names.append("tests.sanitizers._planted")

extensions = [
    Extension(
        name,
        [f"{name.replace('.', '/')}.pyx"],
        extra_compile_args=compile_args,
        extra_link_args=link_args,
        define_macros=macros,
        depends=["setup.py"],
    )
    for name in names
]

setup(
    ext_modules=cythonize(
        extensions, compiler_directives=directives, nthreads=os.cpu_count() or 1
    )
)
