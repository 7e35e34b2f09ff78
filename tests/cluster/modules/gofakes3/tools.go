//go:build tools

// Package tools names the command that the tests of S3 build.
package tools

import _ "github.com/johannesboyne/gofakes3/cmd/gofakes3"
