//go:build tools

// Package tools names the command that the tests of monitoring build.
package tools

import _ "github.com/prometheus/prometheus/cmd/prometheus"
