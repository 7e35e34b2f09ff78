"""The rank's side: steps, timers and the data that it sends."""
