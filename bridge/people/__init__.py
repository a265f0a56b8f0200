"""What people may say and do about accounts and jobs, each proven to be who they are. Runs in the broker."""
