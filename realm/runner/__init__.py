"""Drives a custom executor exactly as GitLab Runner does, fed by the coordinator API of GitLab or its stand-in."""
