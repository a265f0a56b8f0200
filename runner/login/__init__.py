"""The login agent: does on the login node, as the user, what the bridge asks for. Standard library only."""
