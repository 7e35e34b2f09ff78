"""GPU numbers from NVML."""
