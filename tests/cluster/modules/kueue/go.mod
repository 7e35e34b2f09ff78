module cockpit.test/kueue

go 1.24

require sigs.k8s.io/kueue v0.10.1
