module cockpit.test/crds

go 1.24

require (
	github.com/prometheus-operator/prometheus-operator v0.85.0
	github.com/ray-project/kuberay/ray-operator v1.6.0
	volcano.sh/volcano v1.10.0
)
