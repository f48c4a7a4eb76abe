package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// withClock runs a server on a wall clock that step moves. It needs a C compiler on this machine,
// which must have the processor type of the containers.
func withClock(t *testing.T) setting {
	t.Helper()
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	library := filepath.Join(t.TempDir(), "clock.so")
	out, err := exec.CommandContext(t.Context(), cc, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-nostdlib",
		"-fno-stack-protector", "-U_FORTIFY_SOURCE", "-o", library, "testdata/clock.c").CombinedOutput()
	if err != nil {
		t.Fatalf("the clock of the containers is built from testdata/clock.c, on Linux, by a C compiler (cc, or what $CC names): %v\n%s", err, out)
	}
	code, err := os.ReadFile(library)
	must(t, err)
	return func(s *setup) {
		withFile("/clock/clock.so", string(code))(s)
		withFile("/clock/offset", "0\n")(s)
		withEnv("LD_PRELOAD=/clock/clock.so")(s)
	}
}

// step moves the server's wall clock, and returns when the server sees it.
func (m *member) step(t *testing.T, by time.Duration) {
	t.Helper()
	m.ahead += by
	m.exec(t, "sh", "-c", fmt.Sprintf("echo %d >/clock/offset", int(m.ahead.Seconds())))
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		now, err := m.admin.Time(patiently(t)).Result()
		must(t, err)
		off := now.Sub(time.Now().Add(m.ahead)).Abs()
		if off < time.Minute {
			return
		}
		if time.Since(began) > patience {
			t.Fatalf("the clock of %s is off by %v after it was set: does LD_PRELOAD work in this image?", m.addr, off)
		}
	}
}
