package require

import "testing"

// recorder is a testing.TB that records how a test ended.
type recorder struct {
	testing.TB
	ended string
}

func (r *recorder) Helper()               {}
func (r *recorder) Fatalf(string, ...any) { r.ended = "failed" }
func (r *recorder) Skipf(string, ...any)  { r.ended += "skipped" }

func TestSkipFailsWhereTheVariableIsSet(t *testing.T) {
	for value, want := range map[string]string{"": "skipped", "0": "skipped", "1": "failedskipped"} {
		t.Setenv("QUORUMLOCK_REQUIRE_X", value)
		r := new(recorder)
		Skip(r, "QUORUMLOCK_REQUIRE_X", "x is not installed")
		if r.ended != want { // a real Fatalf does not return
			t.Errorf("with %q the test has %s, want %s", value, r.ended, want)
		}
	}
}
