"""What was decided and done, by whom, in a log whose every later change shows."""
