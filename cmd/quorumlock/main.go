// Command quorumlock runs commands under a lock, shows holders and waiters, frees locks, checks and
// measures servers, and demonstrates locks. Its help:
//
//	go run ./cmd/quorumlock help
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
)

// cli is the command line, with one field for each command. The type of each command is in its own
// file.
type cli struct {
	Run        runCommand        `cmd:"" help:"Run a command while holding a lock."`
	Inspect    inspectCommand    `cmd:"" help:"Show the holder and the waiters of a lock."`
	List       listCommand       `cmd:"" help:"List the locks that are held or have waiters."`
	Top        topCommand        `cmd:"" help:"Watch nodes and locks live."`
	Serve      serveCommand      `cmd:"" help:"Show nodes and locks in a browser, and to Prometheus; read only."`
	Unlock     unlockCommand     `cmd:"" help:"Free a lock of any holder."`
	Leader     leaderCommand     `cmd:"" help:"Show the leader of an election."`
	Check      checkCommand      `cmd:"" help:"Check whether Redis servers are fit for locks."`
	ACL        aclCommand        `cmd:"" name:"acl" help:"Print the ACL rule of a client."`
	Bench      benchCommand      `cmd:"" help:"Measure locks on your nodes."`
	Demo       demoCommand       `cmd:"" help:"Watch workers share a lock while nodes fail, and see every promise checked."`
	Dev        devCommand        `cmd:"" help:"Serve nodes for development, with faults by command."`
	Completion completionCommand `cmd:"" help:"Print a completion script for your shell."`
	Version    versionCommand    `cmd:"" help:"Print the version."`
}

// The exit statuses. run passes on the status of its command, so its own statuses are rare ones.
const (
	exitOK           = 0
	exitFailure      = 1
	exitUsage        = 2
	exitNotAcquired  = 121
	exitNoQuorum     = 122
	exitLost         = 123
	exitRunFailed    = 125 // run itself, including mistakes on its command line
	exitCannotRun    = 126 // as in a shell
	exitNoSuch       = 127 // as in a shell
	exitSignal       = 128 // plus the number of the signal, as in a shell
	exitInterrupted  = exitSignal + 2
	maxCommandStatus = 255
)

// env is the environment of a command.
type env struct {
	ctx    context.Context // cancelled when the user interrupts the program
	stdin  io.Reader
	stdout io.Writer // unfiltered: for drawing on a terminal
	text   io.Writer // stdout, filtered of control sequences
	stderr io.Writer
}

// usageError is a mistake on the command line. Its text has the fix.
type usageError string

func (e usageError) Error() string { return string(e) }

// statusError ends the program with its status. err is nil if there is nothing more to print.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.err.Error()
}

func (e *statusError) Unwrap() error { return e.err }

func main() {
	if isWatchdog(os.Args) {
		os.Exit(watch())
	}
	if isRenumber(os.Args) {
		os.Exit(renumber(os.Args))
	}
	redis.SetLogger(silent{}) // go-redis writes every failed dial to stderr
	args := hidePasswords(os.Args)[1:]
	ctx := context.Background()
	if len(args) == 0 || args[0] != "run" { // run passes signals on
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		context.AfterFunc(ctx, stop) // a second signal ends the program at once
	}
	var stderr io.Writer = os.Stderr
	if len(args) > 0 && args[0] == "run" {
		stderr = notes
	}
	status := run(ctx, args, os.Stdin, os.Stdout, stderr)
	notes.flush()
	os.Exit(status)
}

// run is the program without its process. It returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	err := dispatch(&env{ctx, stdin, stdout, safeWriter{stdoutWriter{stdout}}, safeWriter{stderr}}, args)
	status, said := verdict(ctx, args, err)
	if said != nil {
		complain(stderr, said)
	}
	return status
}

// verdict returns the exit status for an error, and the error to print, if any.
func verdict(ctx context.Context, args []string, err error) (status int, said error) {
	if err == nil {
		return exitOK, nil
	}
	if s, ok := errors.AsType[*statusError](err); ok {
		return s.status, s.err
	}
	if _, ok := errors.AsType[usageError](err); ok {
		if len(args) > 0 && args[0] == "run" {
			return exitRunFailed, err
		}
		return exitUsage, err
	}
	if own, ok := errors.AsType[*stdoutError](err); ok && errors.Is(own, syscall.EPIPE) {
		return exitFailure, nil // the reader of the output has gone
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return exitInterrupted, errors.New("interrupted; all locks are released")
	}
	if other := otherKind(err); other != nil {
		return exitFailure, other
	}
	// check has a verdict of its own
	if _, ok := errors.AsType[*quorumlock.QuorumError](err); ok && args[0] != "check" {
		return exitNoQuorum, err
	}
	return exitFailure, err
}

func dispatch(e *env, args []string) error {
	var c cli
	parser, err := kong.New(&c, kong.Name("quorumlock"), kong.NoDefaultHelp(), kong.WithHyphenPrefixedParameters(true), kong.Exit(func(int) {}))
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return usageError("no command: use one of\n\n" + overview(parser.Model.Node) + "\nsuch as: quorumlock demo")
	}
	if isHelp(args[0]) || args[0] == "help" {
		return help(e.text, parser.Model.Node, args[1:])
	}
	if args[0] == "--version" || args[0] == "-V" {
		return versionCommand{}.Run(e)
	}
	command := find(parser.Model.Node, args[0])
	if command == nil {
		return usageError(unknown(parser.Model.Node, args[0]))
	}
	own, behind, dashes := split(args)
	if slices.ContainsFunc(own, isHelp) {
		return help(e.text, parser.Model.Node, args[:1])
	}
	if command.Name == "dev" && slices.ContainsFunc(own, func(a string) bool { return strings.Contains(a, "://") }) {
		return usageError("dev: it has nodes of its own: leave out all URLs; --nodes is their number, such as --nodes 3")
	}
	for i, a := range own { // before an error repeats it
		if i > 0 && isURL.MatchString(a) && !strings.HasPrefix(own[i-1], "--") {
			return usageError(command.Name + ": a URL is not part of --nodes: separate the URLs by commas, as in --nodes redis://10.0.0.1,redis://10.0.0.2")
		}
	}
	if command.Name == "run" {
		c.Run.command = behind
	} else if dashes {
		own = args
	}
	if os.Getenv(timeoutVariable) == "" { // as with the variables of nodes
		_ = os.Unsetenv(timeoutVariable) // fails only for an invalid name
	}
	parsed, err := parser.Parse(own)
	if err != nil {
		return badArguments(command.Name, args[1:], err)
	}
	parsed.Bind(e, parser.Model.Node)
	return parsed.Run()
}

// split returns the arguments before and after the first "--".
func split(args []string) (own, behind []string, dashes bool) {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i], args[i+1:], true
	}
	return args, nil, false
}

// isURL matches the URL of a node.
var isURL = regexp.MustCompile(`^(redis|rediss|unix)://`)

// badArguments returns the error for invalid arguments of a command. It repeats no argument that
// may be a URL with a password.
func badArguments(command string, args []string, err error) error {
	text, hint := err.Error(), ""
	if command == "run" && !slices.Contains(args, "--") {
		hint = ": put -- before the command and its arguments"
	}
	for _, a := range args {
		if strings.Contains(a, "://") {
			if hint == "" {
				hint = ": give the URLs of nodes as --nodes redis://host:6379,redis://..."
			}
			text = strings.ReplaceAll(text, a, "(a URL)")
			if _, value, ok := strings.Cut(a, "="); ok {
				text = strings.ReplaceAll(text, value, "(a URL)")
			}
		}
	}
	return usageError(fmt.Sprintf("%s: %s%s: see quorumlock %s -h", command, text, hint, command))
}

// userinfo matches the user and password of a URL, anywhere on the command line.
var userinfo = regexp.MustCompile(`://\S*@`)

func complain(stderr io.Writer, err error) {
	// one prefix is enough
	text := strings.TrimSpace(strings.ReplaceAll(err.Error(), "quorumlock: ", ""))
	_, _ = fmt.Fprintln(safeWriter{stderr}, "quorumlock: "+userinfo.ReplaceAllString(text, "://"))
}

// silent is a logger for go-redis that discards everything.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
