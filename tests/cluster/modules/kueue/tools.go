//go:build tools

// Package tools names the command that the test of queues builds.
package tools

import _ "sigs.k8s.io/kueue/cmd/kueue"
