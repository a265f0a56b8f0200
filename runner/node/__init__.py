"""The node agent: fetches and removes the tickets of a Slurm job on its compute node."""
