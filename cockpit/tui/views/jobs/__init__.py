"""View 5: jobs and their logs."""
