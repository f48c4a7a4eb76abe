//go:build unix

package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/examples/internal/try"
	"github.com/quorumlock/quorumlock/internal/testkit"
)

func TestMain(m *testing.M) { try.Main(m, main) }

func TestTheNextLeaderBeginsWhenTheLastIsDrained(t *testing.T) {
	fleet := try.New(t, "ADDR=127.0.0.1:0")
	expect := func(want string) {
		t.Helper()
		if line := fleet.Line(); line != want {
			t.Fatalf("%q, want %q", line, want)
		}
	}
	get := func(addr, path, want string) {
		t.Helper()
		answer, err := http.Get("http://" + addr + path)
		testkit.Must(t, err, "GET %s", path)
		defer answer.Body.Close() //nolint:errcheck // it was read
		if body, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != 200 || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d %q %v, want 200 and %q", path, answer.StatusCode, body, err, want)
		}
	}
	first := fleet.Start("")
	a := strings.TrimPrefix(fleet.Line(), "serving at ")
	expect(a + " leads")
	second := fleet.Start("")
	b := strings.TrimPrefix(fleet.Line(), "serving at ")
	for _, addr := range []string{a, b} {
		get(addr, "/leader", a)
		get(addr, "/readyz", "")
		get(addr, "/livez", "")
	}
	fleet.Stop(first)
	expect(a + " is drained")
	expect(b + " leads")
	get(b, "/leader", b)
	fleet.Stop(second)
	expect(b + " is drained")
}
