"""Why a job, a worker group or a pod waits, as one chain of stages."""
