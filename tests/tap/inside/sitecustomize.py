"""Python runs this before anything else in a process whose PYTHONPATH begins with this folder (docs of `site`)."""

from tests.tap.recorder import tap_this_service

tap_this_service()
