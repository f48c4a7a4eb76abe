// Package require skips tests of missing programs. The gate sets the variables, so that a missing program is a
// failure.
package require

import (
	"os"
	"testing"
)

// Skip skips the test for a reason, such as a program that is not installed. It fails the test instead if the environment
// variable is 1.
func Skip(t testing.TB, variable, reason string) {
	t.Helper()
	if os.Getenv(variable) == "1" {
		t.Fatalf("%s, and %s=1", reason, variable)
	}
	t.Skipf("%s (%s=1 makes this a failure)", reason, variable)
}
