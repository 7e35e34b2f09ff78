"""Scripts that run in pods, sent as text: see `cockpit.drills.engine.pod_script`."""
