"""The HTTP face of the bridge: thin routes over what the rooms below do."""
