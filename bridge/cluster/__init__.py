"""TicketBundle -> a job on Slurm: the login node over SSH as the person, and the scheduler through it."""
