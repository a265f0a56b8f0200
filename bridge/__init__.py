"""The bridge: from a GitLab job's token to a Slurm job of the person who started it."""
