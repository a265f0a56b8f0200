"""The pages for people: plain HTML of our own, which works without JavaScript and loads nothing of others."""
