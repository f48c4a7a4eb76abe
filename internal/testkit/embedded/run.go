package embedded

import (
	"maps"
	"slices"
	"strings"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// Run is one run of a script at a server.
type Run struct {
	Server *Server
	Script string // such as acquire, see known; empty for a script from outside the library
	Keys   []string
	Args   []string
}

// hooks are called as scripts run. A hook that blocks holds up its connection, and no other.
type hooks struct {
	before, after func(Run)
	command       func(command string)
}

// Before calls f for every script that is about to run. A nil f ends that.
func (s *Server) Before(f func(Run)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks.before = f
}

// After calls f for every script that has run, before its reply is sent. A nil f ends that.
func (s *Server) After(f func(Run)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks.after = f
}

// Commands calls f with the name of every command, in upper case: those of clients and those of
// scripts, in the order in which they run. A nil f ends that.
func (s *Server) Commands(f func(command string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks.command = f
}

// Ran returns the number of runs of the named scripts, or of all scripts if none is named.
func (s *Server) Ran(names ...string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(names) == 0 {
		names = slices.Collect(maps.Keys(s.ran))
	}
	n := 0
	for _, name := range names {
		n += s.ran[name]
	}
	return n
}

func (s *Server) beforeRun(r Run) {
	s.mu.Lock()
	f := s.hooks.before
	s.mu.Unlock()
	if f != nil {
		f(r)
	}
}

func (s *Server) afterRun(r Run) {
	s.mu.Lock()
	s.ran[r.Script]++
	f := s.hooks.after
	s.mu.Unlock()
	if f != nil {
		f(r)
	}
}

// known maps the source and the SHA of each script to its name.
var known = func() map[string]string {
	names := make(map[string]string)
	for _, s := range append(wire.Scripts(), wire.Bundle) {
		names[s.SHA()], names[s.Source] = s.Name, s.Name
	}
	return names
}()

// scriptsOf returns the runs of scripts in a request: one, or those of a bundle's calls.
func scriptsOf(s *Server, args []string) []Run {
	if len(args) < 3 || !strings.EqualFold(args[0], "evalsha") && !strings.EqualFold(args[0], "eval") {
		return nil
	}
	keys := 0
	for _, digit := range args[2] {
		keys = keys*10 + int(digit-'0')
	}
	if 3+keys > len(args) {
		return nil
	}
	run := Run{Server: s, Script: known[args[1]], Keys: args[3 : 3+keys], Args: args[3+keys:]}
	if run.Script != wire.Bundle.Name {
		return []Run{run}
	}
	var runs []Run
	for script, of := range wire.Unbundled(run.Keys, run.Args) {
		runs = append(runs, Run{Server: s, Script: script.Name, Keys: of[0], Args: of[1]})
	}
	return runs
}

// subscribes reports whether the answer to a request comes as a push, as a message does.
func subscribes(args []string) bool {
	return len(args) > 0 && strings.Contains(strings.ToLower(args[0]), "subscribe")
}
