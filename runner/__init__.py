"""The bridge's small programs on other machines: executor, login agent, node agent. Standard library only."""
