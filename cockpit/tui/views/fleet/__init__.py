"""View 0: all clusters of all contexts."""
