"""Live runs: what web does with an admitted job, from its workspace to its last exit code."""
