// Package notice says loudly that tests did not run.
package notice

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// DidNotRun ends the run of a package's tests on a machine that lacks what they need, and returns its exit status: that of
// a failure if the variable is 1.
//
// The tests are not run at all, instead of each being skipped: then the go command shows
// "[no tests to run]" on the package's line, and does not keep the outcome for the next time, when
// there may be what is missing.
func DidNotRun(tests, why, unchecked, variable string) int {
	if !Missing(tests, why, unchecked, variable) {
		return 1
	}
	fmt.Println("testing: warning: no tests to run") // the go command looks for this very line
	fmt.Println("PASS")
	return 0
}

// Missing says that some tests did not run, and why, and reports whether that is no failure: whether the variable is not 1.
func Missing(tests, why, unchecked, variable string) bool {
	notice := fmt.Sprintf(`
!!!  THE %s DID NOT RUN: %s.
!!!  %s.
`, tests, why, unchecked)
	if os.Getenv(variable) == "1" {
		fmt.Fprintln(os.Stderr, notice+"!!!  "+variable+"=1 makes that a failure.")
		return false
	}
	Tell(notice)
	return true
}

// Tell writes what a person has to see of a run that passes.
func Tell(text string) {
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
