package testkit

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
)

// Err returns the error of a call with two results.
func Err[T any](_ T, err error) error { return err }

// OK checks that a call has returned no error. The format names the call, as in all the checks.
func OK(t testing.TB, err error, format string, args ...any) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", fmt.Sprintf(format, args...), err)
	}
}

// Must is OK, and ends the test.
func Must(t testing.TB, err error, format string, args ...any) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", fmt.Sprintf(format, args...), err)
	}
}

// Is checks the error of a call by [errors.Is].
func Is(t testing.TB, err, want error, format string, args ...any) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", fmt.Sprintf(format, args...), err, want)
	}
}

// Equal checks a value.
func Equal[T comparable](t testing.TB, got, want T, format string, args ...any) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", fmt.Sprintf(format, args...), got, want)
	}
}

// Took checks the time since a call began.
func Took(t testing.TB, began time.Time, least, most time.Duration, format string, args ...any) {
	t.Helper()
	if took := time.Since(began); took < least || took > most {
		t.Errorf("%s: took %v, want %v to %v", fmt.Sprintf(format, args...), took, least, most)
	}
}

// Rises checks that the token of a lease is above that of an earlier one.
func Rises(t testing.TB, earlier, lease *quorumlock.Lease) {
	t.Helper()
	if lease.Token() <= earlier.Token() {
		t.Errorf("token %d after %d", lease.Token(), earlier.Token())
	}
}
