"""Jobs onto a cluster: the bundled ones, their package, and submitting them."""
