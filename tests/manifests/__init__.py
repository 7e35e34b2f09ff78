"""manifests/, built with kustomize and applied to a real API server."""
