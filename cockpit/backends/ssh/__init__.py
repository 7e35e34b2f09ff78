"""The `ssh` backend: a Ray cluster on a list of hosts, reached with OpenSSH alone."""
