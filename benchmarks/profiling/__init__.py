"""What ``make profile`` runs; see ``docs/profiling.md``."""
