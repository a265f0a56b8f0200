"""From a token of a stranger to the identity of a person in a live GitLab job."""
