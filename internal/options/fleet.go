package options

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
)

// The variables with the other settings of a fleet, and the one that names a file with all of them.
const (
	FileVariable         = "QUORUMLOCK_FILE"
	QuorumVariable       = "QUORUMLOCK_QUORUM"
	PrefixVariable       = "QUORUMLOCK_PREFIX"
	TTLVariable          = "QUORUMLOCK_TTL"
	RestartGuardVariable = "QUORUMLOCK_RESTART_GUARD"
	NodeTimeoutVariable  = "QUORUMLOCK_NODE_TIMEOUT"
	TLSCAVariable        = "QUORUMLOCK_TLS_CA"
)

// shared are the variables that a settings file may set.
var shared = []string{NodesVariable, QuorumVariable, PrefixVariable, TTLVariable, RestartGuardVariable, NodeTimeoutVariable, TLSCAVariable}

// Fleet has the settings that all clients of a lock must share. A setting that is not set is zero.
type Fleet struct {
	Nodes        []string // URLs, with their credentials
	Quorum       int
	Prefix       string
	TTL          time.Duration
	RestartGuard time.Duration
	NodeTimeout  time.Duration
	TLSCA        string // the name of a file

	File  string // the file that has the nodes, if it can be read again
	Where string // the variable that has the nodes or names their file; "" without nodes

	// Partial is the reason why a changed file may be half written; nil if it is complete.
	Partial error

	places map[string]string // where each variable was set, for errors
	env    map[string]string // the variables when they were read first
}

// ReadFleet returns the settings in the environment and in the file that QUORUMLOCK_FILE names.
// instead has values that replace those of the environment. Errors name the variable, and contain no
// URL.
func ReadFleet(instead map[string]string) (Fleet, error) {
	env := make(map[string]string)
	for _, name := range append([]string{FileVariable, NodesFileVariable}, shared...) {
		env[name] = os.Getenv(name)
	}
	maps.Copy(env, instead)
	return readFleet(env)
}

// Again reads the file again.
func (f *Fleet) Again() (Fleet, error) { return readFleet(f.env) }

func readFleet(env map[string]string) (Fleet, error) {
	f := Fleet{places: make(map[string]string), env: env}
	values := make(map[string]string)
	for _, name := range shared {
		if v := env[name]; v != "" {
			values[name], f.places[name] = v, name
		}
	}
	if file := env[FileVariable]; file != "" {
		if err := f.readFile(file, values); err != nil {
			return f, err
		}
	}
	if err := f.parse(values); err != nil {
		return f, err
	}
	switch file := env[NodesFileVariable]; {
	case file == "":
	case f.Nodes == nil:
		urls, ends, err := readNodes(NodesFileVariable, file)
		if err != nil {
			return f, err
		}
		f.Nodes, f.Where, f.File = urls, NodesFileVariable, regular(file)
		if !ends {
			f.Partial = errs.Misusef("%s: %s does not end with a newline, as if half written: end its last line", NodesFileVariable, file)
		}
	case f.Where != NodesVariable:
		return f, errs.Misusef("%s and %s both name nodes: use one of them", f.places[NodesVariable], NodesFileVariable)
	}
	return f, nil
}

// regular returns the name of a file that can be read again, and "" for others, such as a pipe.
func regular(file string) string {
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return file
}

// variableName matches the names that an error may repeat.
var variableName = regexp.MustCompile(`^QUORUMLOCK_[A-Z_]+$`)

// readFile adds the values of a settings file.
func (f *Fleet) readFile(file string, values map[string]string) error {
	bad := func(format string, args ...any) error {
		return errs.Misusef("%s: %s: %s", FileVariable, file, fmt.Sprintf(format, args...))
	}
	open, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("%s: %w", FileVariable, err)
	}
	defer open.Close() //nolint:errcheck // it was only read
	text, err := io.ReadAll(io.LimitReader(open, maxNodesFile))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %s cannot be read: %w", FileVariable, file, err)
	case len(strings.TrimSpace(string(text))) == 0:
		return bad("it is empty: write NAME=value lines, such as %s=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3", NodesVariable)
	case text[len(text)-1] != '\n':
		return bad("it does not end with a newline, as if half written: end its last line")
	}
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		switch {
		case !ok || !variableName.MatchString(name):
			return bad("line %d is not of the form NAME=value: use one of %s", n, strings.Join(shared, ", "))
		case !slices.Contains(shared, name):
			return bad("line %d: %s cannot be set in a file: use one of %s", n, name, strings.Join(shared, ", "))
		case value == "":
			return bad("line %d: %s has no value: give it one, or leave the line out", n, name)
		case value[0] == '"' || value[0] == '\'':
			return bad("line %d: %s has quotes: write the value without them", n, name)
		}
		place := fmt.Sprintf("%s (line %d of %s)", name, n, file)
		switch other, set := values[name]; {
		case set && f.places[name] != name:
			return bad("line %d: %s is set twice: remove one of the lines", n, name)
		case set && other != value && name == NodesVariable: // they may have passwords
			return bad("line %d: %s differs from the one in the environment: remove one of them", n, name)
		case set && other != value:
			return bad("line %d: %s is %s, and %s in the environment: remove one of them", n, name, value, other)
		}
		values[name], f.places[name] = value, place
		if name == NodesVariable {
			f.File = regular(file)
		}
	}
	return nil
}

// parse sets the fields from the texts of their variables.
func (f *Fleet) parse(values map[string]string) (err error) {
	text := func(name string) (string, bool) {
		v, ok := values[name]
		return v, ok && err == nil
	}
	duration := func(name string, d *time.Duration) {
		if v, ok := text(name); ok {
			if *d, err = time.ParseDuration(v); err != nil || *d <= 0 {
				err = errs.Misusef("%s: %.40q is no positive duration: use one such as 30s", f.places[name], v)
			}
		}
	}
	if v, ok := text(NodesVariable); ok {
		f.Where = f.places[NodesVariable]
		f.Nodes, err = SplitNodes(f.Where, v)
	}
	if v, ok := text(QuorumVariable); ok {
		if f.Quorum, err = strconv.Atoi(v); err != nil || f.Quorum < 1 {
			err = errs.Misusef("%s: %.40q is no number of nodes: use how many must agree, such as 2", f.places[QuorumVariable], v)
		}
	}
	duration(TTLVariable, &f.TTL)
	duration(RestartGuardVariable, &f.RestartGuard)
	duration(NodeTimeoutVariable, &f.NodeTimeout)
	f.Prefix, f.TLSCA = values[PrefixVariable], values[TLSCAVariable]
	return err
}

// Options returns the settings as options of a client.
func (f *Fleet) Options() (opts []quorumlock.Option) {
	if f.Quorum != 0 {
		opts = append(opts, quorumlock.WithQuorum(f.Quorum))
	}
	if f.Prefix != "" {
		opts = append(opts, quorumlock.WithPrefix(f.Prefix))
	}
	if f.TTL != 0 {
		opts = append(opts, quorumlock.WithTTL(f.TTL))
	}
	if f.RestartGuard != 0 {
		opts = append(opts, quorumlock.WithRestartGuard(f.RestartGuard))
	}
	if f.NodeTimeout != 0 {
		opts = append(opts, quorumlock.WithNodeTimeout(f.NodeTimeout))
	}
	return opts
}

// notGiven is no prefix that a caller can want.
const notGiven = "\x00"

// Contradiction returns an error that names both values if an option has another value than a
// setting.
func (f *Fleet) Contradiction(opts []quorumlock.Option) error {
	given := Settings{Quorum: unset, Prefix: notGiven, TTL: unset, MaxTTL: unset, NodeTimeout: unset}
	for _, o := range opts {
		if o != nil {
			o(&given)
		}
	}
	for _, s := range []struct {
		option, variable string
		set, given       bool
		ours, theirs     any
	}{
		{"WithQuorum", QuorumVariable, f.Quorum != 0, given.Quorum != unset, f.Quorum, given.Quorum},
		{"WithPrefix", PrefixVariable, f.Prefix != "", given.Prefix != notGiven, f.Prefix, given.Prefix},
		{"WithTTL", TTLVariable, f.TTL != 0, given.TTL != unset, f.TTL, given.TTL},
		{"WithRestartGuard", RestartGuardVariable, f.RestartGuard != 0, given.MaxTTL != unset, f.RestartGuard, given.MaxTTL},
		{"WithNodeTimeout", NodeTimeoutVariable, f.NodeTimeout != 0, given.NodeTimeout != unset, f.NodeTimeout, given.NodeTimeout},
	} {
		if s.set && s.given && s.ours != s.theirs {
			return errs.Misusef("%s is %v, and the code has %s(%v): remove one of them", f.places[s.variable], s.ours, s.option, s.theirs)
		}
	}
	return nil
}

// Replaced compares the settings with those of a later reading. It returns the position of the node
// with another address, or -1, and the positions of the nodes with other credentials alone. The
// error is the reason why a running client cannot follow the change.
func (f *Fleet) Replaced(to *Fleet) (moved int, rekeyed []int, err error) {
	const fix = "put it back, or stop every client before you start the first with the new value"
	for _, s := range []struct {
		variable string
		from, to any
	}{
		{QuorumVariable, f.Quorum, to.Quorum},
		{PrefixVariable, f.Prefix, to.Prefix},
		{TTLVariable, f.TTL, to.TTL},
		{RestartGuardVariable, f.RestartGuard, to.RestartGuard},
		{NodeTimeoutVariable, f.NodeTimeout, to.NodeTimeout},
		{TLSCAVariable, f.TLSCA, to.TLSCA},
	} {
		if s.from != s.to {
			return -1, nil, errs.Misusef("%s was %v and is %v: only the address of one node may change at a time: %s", s.variable, s.from, s.to, fix)
		}
	}
	if len(f.Nodes) != len(to.Nodes) {
		return -1, nil, errs.Misusef("there were %d nodes and are %d: only the address of one node may change at a time: %s", len(f.Nodes), len(to.Nodes), fix)
	}
	moved = -1
	for i := range f.Nodes {
		if f.Nodes[i] == to.Nodes[i] {
			continue
		}
		was, is, err := differ(f.Nodes[i], to.Nodes[i])
		switch {
		case err != nil:
			return -1, nil, errs.Misusef("node %d of %d: %w", i+1, len(to.Nodes), err)
		case was == is:
			rekeyed = append(rekeyed, i)
		case moved >= 0:
			return -1, nil, errs.Misusef("nodes %d and %d both have another address: change one node at a time, and leave the others at their places in the list", moved+1, i+1)
		default:
			moved = i
		}
	}
	if (moved >= 0 || len(rekeyed) > 0) && to.Partial != nil {
		return -1, nil, to.Partial
	}
	return moved, rekeyed, nil
}

// differ returns the addresses of two URLs of one position, without credentials. They may not
// differ in anything else.
func differ(from, to string) (was, is string, err error) {
	a, err := url.Parse(from)
	if err != nil {
		return "", "", errors.New("its URL could not be read")
	}
	b, err := url.Parse(to)
	if err != nil {
		return "", "", errors.New("its URL cannot be read")
	}
	was, is = hostPort(a), hostPort(b)
	if a.Scheme != b.Scheme || a.Path != b.Path || a.RawQuery != b.RawQuery {
		return "", "", errors.New("more than its host, port and credentials has changed, such as the scheme or the database")
	}
	return was, is, nil
}

// hostPort returns the address in the URL of a node.
func hostPort(u *url.URL) string {
	if u.Port() == "" {
		return net.JoinHostPort(u.Hostname(), "6379")
	}
	return u.Host
}

// Follow makes a client of package redlock follow changes of its settings file.
type Follow struct {
	Settings Fleet                         // of the client at its start
	Dial     func(url string) (any, error) // makes a *node.Node, as for the client
}

// Following is the option of a client that follows.
func Following(f *Follow) quorumlock.Option {
	return func(s *Settings) { s.Follow = f }
}
