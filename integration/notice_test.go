package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// didNotRun ends the run on a machine that cannot start Redis containers, and returns its exit status.
//
// The tests are not run at all, instead of each being skipped: then the go command shows
// "[no tests to run]" on the package's line, and does not keep the outcome for the next time, when
// there may be a daemon.
func didNotRun(why string) int {
	notice := fmt.Sprintf(`
!!!  THE CONTAINER TESTS DID NOT RUN: %s.
!!!  Nothing was checked on real Redis servers.
`, why)
	if os.Getenv("QUORUMLOCK_REQUIRE_DOCKER") == "1" {
		fmt.Fprintln(os.Stderr, notice+"!!!  QUORUMLOCK_REQUIRE_DOCKER=1 makes that a failure.")
		return 1
	}
	tell(notice)
	fmt.Println("testing: warning: no tests to run") // the go command looks for this very line
	fmt.Println("PASS")
	return 0
}

// tell writes what a person has to see of a run that passes.
func tell(text string) {
	fmt.Println(text)
	if !testing.Verbose() {
		past(text)
	}
}

// past writes it where a person sees it: the go command keeps the output of a package that
// passes to itself, unless it runs with -v. Where neither way is open, "[no tests to run]" is left.
func past(text string) {
	for _, path := range []string{standardErrorOfGo(), "/dev/tty"} {
		if path == "" {
			continue
		}
		if f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0); err == nil {
			_, err = fmt.Fprintln(f, roomIn(f)+text)
			_ = f.Close()
			if err == nil {
				return
			}
		}
	}
}

// roomIn returns blanks for the go command to write over: in a regular file it goes on where it left off, over what
// was appended meanwhile.
func roomIn(f *os.File) string {
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return strings.Repeat(" ", 4096) + "\n"
}

// standardErrorOfGo returns the path of the go command's standard error on Linux, if that is what
// started the tests.
func standardErrorOfGo() string {
	proc := fmt.Sprintf("/proc/%d", os.Getppid())
	if name, err := os.ReadFile(filepath.Join(proc, "comm")); err != nil || strings.TrimSpace(string(name)) != "go" {
		return ""
	}
	return filepath.Join(proc, "fd", "2")
}
