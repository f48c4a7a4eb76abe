package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// The test binary is also a command that writes the time into a file for as long as it lives, so
// that a test knows the time of its death.

const (
	beatFile = "QUORUMLOCK_TEST_BEAT"
	beatMode = "QUORUMLOCK_TEST_MODE"
)

// beat is that command. The mode has words: stubborn ignores SIGTERM, fork starts another in the
// process group, setsid starts one in a session of its own, leave ends when these beat.
func beat(file, mode string) {
	if strings.Contains(mode, "stubborn") {
		signal.Ignore(syscall.SIGTERM)
	}
	others := heart{files: heartAt(file, mode).files[1:]}
	for _, other := range others.files {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), beatFile+"="+other, beatMode+"="+strings.NewReplacer("fork", "", "setsid", "", "leave", "").Replace(mode))
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: strings.HasSuffix(other, ".setsid")}
		if err := c.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(99)
		}
	}
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		os.Exit(99)
	}
	var b [8]byte
	for {
		binary.LittleEndian.PutUint64(b[:], uint64(time.Now().UnixNano()))
		if _, err := f.WriteAt(b[:], 0); err != nil {
			os.Exit(99)
		}
		if strings.Contains(mode, "leave") && others.beating() {
			os.Exit(0)
		}
		time.Sleep(time.Millisecond)
	}
}

// lastBeat returns the last time in a beat's file, or the zero time.
func lastBeat(file string) time.Time {
	b, err := os.ReadFile(file)
	if err != nil || len(b) < 8 {
		return time.Time{}
	}
	return time.Unix(0, int64(binary.LittleEndian.Uint64(b)))
}

// heart is a beat and its descendants.
type heart struct {
	mode  string
	files []string
}

func heartAt(file, mode string) heart {
	h := heart{mode, []string{file}}
	for _, other := range []string{"fork", "setsid"} {
		if strings.Contains(mode, other) {
			h.files = append(h.files, file+"."+other)
		}
	}
	return h
}

func (h heart) env() []string { return []string{beatFile + "=" + h.files[0], beatMode + "=" + h.mode} }

// beating reports whether all of it have begun.
func (h heart) beating() bool {
	for _, f := range h.files {
		if lastBeat(f).IsZero() {
			return false
		}
	}
	return true
}

// last returns the last time at which any of them was alive.
func (h heart) last() (last time.Time) {
	for _, f := range h.files {
		if at := lastBeat(f); at.After(last) {
			last = at
		}
	}
	return last
}
