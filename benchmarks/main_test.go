package main

import (
	"io"
	"strings"
	"testing"
)

func TestFlagsThatCannotWorkAreNamed(t *testing.T) {
	for _, args := range []string{"-part lunch", "-contenders 0", "-contenders 4,x", "-hold -1s", "-duration 1h", "-callers 100000", "-seeds one"} {
		_, err := parseFlags(strings.Fields(args), io.Discard)
		if flag, _, _ := strings.Cut(args, " "); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: error %v does not name %s", args, err, flag)
		}
	}
	if _, err := parseFlags(nil, io.Discard); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}

func TestMissingRedisIsSaidInWords(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := startServers(t.Context(), 1)
	if err == nil || !strings.Contains(err.Error(), "install Redis") {
		t.Errorf("error %v does not say what to install", err)
	}
}
