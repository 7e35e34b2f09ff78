"""Recordings of the real KubeRay operator, and their replay.

`operator.json`, `autoscaler.json` and `multi-host.json` were distilled (`distil`) from every watch
event of one cluster, `demo`, under KubeRay 1.7 on Kubernetes 1.34 with a real kubelet and real pods
of Ray 2.60. `facts` defines the kept fields of an object; `replay` plays a recording against an
operator on a real API server, acts as the user, Ray's autoscaler and the kubelet, and compares.
"""
