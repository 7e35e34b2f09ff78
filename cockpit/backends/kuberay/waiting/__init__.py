"""What objects wait for: Kueue, Volcano, volume claims and the stages of a pod."""
