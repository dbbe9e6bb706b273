"""What is tried in a process of its own: leaks, and how a process ends."""
