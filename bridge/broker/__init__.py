"""The keytab's process: it admits jobs and makes ticket bundles, and answers web only."""
