"""The rank's side: steps, timers and what it sends."""
