"""What is run inside a pod; see `cockpit.drills.engine.pod_script`."""
