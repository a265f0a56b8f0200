"""Looks at what the bridge needs, from where the bridge stands, and says what is wrong and what to do about it."""
