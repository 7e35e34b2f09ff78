"""Scripts that run inside a pod; see `cockpit.drills.engine.pod_script`."""
