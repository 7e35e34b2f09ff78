//go:build tools

// Package tools names the operator that nightly tests start.
package tools

import _ "github.com/ray-project/kuberay/ray-operator"
