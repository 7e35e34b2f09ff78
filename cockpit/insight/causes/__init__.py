"""Why an attempt or a job ended badly."""
