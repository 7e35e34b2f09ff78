"""What is run inside a pod; see `cockpit.drills.agent`."""
