// Command quorumlock shows the lock at work, and checks the servers it is to work on. See its usage:
//
//	go run github.com/quorumlock/quorumlock/cmd/quorumlock help
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// command is one of the program's commands, in a file of its own.
type command struct {
	name    string
	summary string
	run     func(ctx context.Context, stdout io.Writer, args []string) error
}

var commands = []command{
	{"demo", "watch workers share a lock while nodes fail, and see every promise checked", runDemo},
	{"check", "ask Redis servers whether they are fit for locks", runCheck},
}

const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130 // as a shell reports SIGINT
)

// usageError is a mistake on the command line. It says what would do.
type usageError string

func (e usageError) Error() string { return string(e) }

func main() {
	redis.SetLogger(silent{}) // go-redis writes every failed dial to stderr
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run is the whole program, but for the process around it. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := dispatch(ctx, args, stdout)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		complain(stderr, err)
		return exitUsage
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		complain(stderr, errors.New("interrupted; all locks are released"))
		return exitInterrupted
	}
	complain(stderr, err)
	return exitFailure
}

func dispatch(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) == 0 {
		return usageError("no command: use one of\n\n" + list() + "\nsuch as: quorumlock demo")
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		fmt.Fprintf(stdout, "Distributed locks over independent Redis nodes.\n\nUsage: quorumlock <command> [flags]\n\n%s\nFlags of a command: quorumlock <command> -h\n", list())
		return nil
	}
	for _, c := range commands {
		if c.name == args[0] {
			return c.run(ctx, stdout, args[1:])
		}
	}
	return usageError(fmt.Sprintf("unknown command %q: use one of\n\n%s", args[0], list()))
}

func list() string {
	var b strings.Builder
	for _, c := range commands {
		fmt.Fprintf(&b, "  %-6s  %s\n", c.name, c.summary)
	}
	fmt.Fprintf(&b, "  %-6s  %s\n", "help", "print this")
	return b.String()
}

// userinfo is the user and password of a URL, wherever they may have been put on the command line.
var userinfo = regexp.MustCompile(`://\S*@`)

func complain(stderr io.Writer, err error) {
	text := strings.TrimSpace(strings.ReplaceAll(err.Error(), "quorumlock: ", "")) // once is enough
	fmt.Fprintln(stderr, "quorumlock: "+userinfo.ReplaceAllString(text, "://"))
}

// silent is a logger for go-redis.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
