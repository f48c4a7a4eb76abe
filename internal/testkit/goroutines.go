package testkit

import (
	"cmp"
	"reflect"
	"runtime"
	"slices"
	"strings"

	"github.com/quorumlock/quorumlock"
)

// module is the prefix of the library's function names.
var module = reflect.TypeFor[quorumlock.Lease]().PkgPath()

// helpers are the packages that simulate servers and other clients: their goroutines are not the
// library's. All other packages are.
var helpers = []string{
	"cmd/quorumlock/internal/demo", "internal/testkit/embedded", "internal/testkit", "internal/testkit/embedded/redislua", "proof/redisson", "internal/testkit/wallclock",
	"locktest",
}

// waits are the functions in which the worker and the reader of a lane wait until its node is
// closed. If they are renamed, Goroutines returns too many, and tests fail.
var waits = []string{"internal/transport.(*lane).wait", "internal/transport.(*reader).fill"}

// hub is the prefix of a subscription's function names. A subscription is kept for ten seconds. If
// these functions are renamed, Goroutines returns too many, and tests fail.
const hub = "internal/transport.(*hub)."

// dial is the prefix of the names of functions that run a dialer: it ends with its ctx, and Close
// does not wait for it.
const dial = "internal/transport.(*Node).startDial"

// Goroutines returns the stacks of the library's goroutines but idle lanes, subscriptions and
// dials.
func Goroutines() []string {
	return goroutines(func(inner, outer string) bool {
		return !slices.Contains(waits, inner) && !strings.HasPrefix(outer, hub) && !strings.HasPrefix(outer, dial)
	})
}

// BusyGoroutines is Goroutines including subscriptions.
func BusyGoroutines() []string {
	return goroutines(func(inner, outer string) bool {
		return !slices.Contains(waits, inner) || strings.HasPrefix(outer, hub)
	})
}

// AllGoroutines returns the stacks of all goroutines of the library.
func AllGoroutines() []string { return goroutines(func(string, string) bool { return true }) }

// goroutines returns the stacks of the library's goroutines that count accepts, by the innermost
// and the outermost library function in the stack. In a synctest bubble, it returns only the
// goroutines of that bubble, because parallel tests have their own.
func goroutines(count func(inner, outer string) bool) []string {
	all := strings.Split(everyStack(), "\n\n")
	bubble := bubbleOf(all[0]) // the first is the caller's
	return slices.DeleteFunc(all, func(stack string) bool {
		inner, outer := libraryFunctions(stack)
		return outer == "" || bubble != "" && bubbleOf(stack) != bubble || !count(inner, outer)
	})
}

func everyStack() string {
	buf := make([]byte, 1<<20)
	for {
		if n := runtime.Stack(buf, true); n < len(buf) {
			return string(buf[:n])
		}
		buf = make([]byte, 2*len(buf))
	}
}

// bubbleOf returns the number of a goroutine's synctest bubble, "" outside a bubble.
func bubbleOf(stack string) string {
	header, _, _ := strings.Cut(stack, "\n")
	_, bubble, _ := strings.Cut(header, "synctest bubble ")
	return strings.TrimRight(bubble, "]:")
}

// libraryFunctions returns the innermost and the outermost library function in a stack, without the
// path of the module. They are empty if the goroutine did not begin with a library function.
func libraryFunctions(stack string) (inner, outer string) {
	lines := strings.Split(stack, "\n")
	for i, line := range lines {
		end := strings.LastIndexByte(line, '(')
		if i == 0 || end < 0 || strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "created by ") {
			continue
		}
		function := line[:end]
		if strings.HasPrefix(function, "golang.org/x/sync/errgroup.") || strings.HasPrefix(function, "sync.") {
			continue // they run functions of other packages
		}
		outer = ""
		if name, ok := strings.CutPrefix(function, module); ok && isLibrary(name) && !strings.Contains(lines[i+1], "_test.go:") {
			outer = strings.TrimLeft(name, "/.")
			inner = cmp.Or(inner, outer)
		}
	}
	return inner, outer
}

// isLibrary reports whether a function is the library's, by its name after the module path.
func isLibrary(name string) bool {
	return !slices.ContainsFunc(helpers, func(p string) bool { return strings.HasPrefix(name, "/"+p+".") })
}
