"""Who may run as whom, where and with how much: a bundle of files, and pure decisions over it."""
