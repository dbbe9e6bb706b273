"""Run the suite under sanitizers and valgrind: see docs/robustness.md."""
