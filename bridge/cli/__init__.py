"""The ``ci-bridge`` command: one file for each noun."""
