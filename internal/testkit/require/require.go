// Package require skips tests of missing programs. The gate sets the variables that turn a missing
// program into a failure.
package require

import (
	"os"
	"testing"
)

// Skip skips the test for a reason, such as a program that is not installed. If the environment
// variable is 1, it fails the test instead.
func Skip(t testing.TB, variable, reason string) {
	t.Helper()
	if os.Getenv(variable) == "1" {
		t.Fatalf("%s, and %s=1", reason, variable)
	}
	t.Skipf("%s (%s=1 makes this a failure)", reason, variable)
}
