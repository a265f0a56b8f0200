"""The custom executor that GitLab Runner calls: carries a job to the bridge and its log back. Standard library only."""
