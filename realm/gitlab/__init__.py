"""A GitLab stand-in that speaks the interfaces a runner, a git client, python-gitlab and the bridge use."""
