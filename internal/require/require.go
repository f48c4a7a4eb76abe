// Package require lets a test skip what a machine lacks. The gate sets the variables and so insists on everything.
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
