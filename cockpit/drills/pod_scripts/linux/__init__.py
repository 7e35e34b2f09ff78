"""What the scripts use of Linux: processes, control groups, file locks and packets."""
