package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/quorumlock/quorumlock/internal/demo"
)

const demoUsage = `Usage: quorumlock demo [--nodes URL,URL,...]

Workers share a lock and write to a resource that checks fencing tokens. Without flags it needs nothing:
five nodes run inside the process; they are killed, frozen and brought back. Ends with status 0 if every
promise was kept, and 1 if not.

  --nodes URL,URL,...   play on these Redis servers instead. They are not harmed: only contention and a
                        paused holder are shown, under a lock name of its own that is deleted again.
                        redis://user:password@host:6379/0, rediss:// for TLS, unix:///path/to/socket
`

func runDemo(ctx context.Context, stdout io.Writer, args []string) (err error) {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	nodes := flags.String("nodes", "", "")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		_, err := io.WriteString(stdout, demoUsage)
		return err
	case err != nil:
		return usageError(fmt.Sprintf("demo: %v: see quorumlock demo -h", err))
	case flags.NArg() > 0: // which may be a URL with a password, so it is not repeated
		return usageError("demo: it takes no arguments: give the URLs of nodes as --nodes URL,URL,...")
	}

	open := demo.Embedded
	if flags.NFlag() > 0 {
		urls, err := splitNodes("demo", *nodes)
		if err != nil {
			return err
		}
		open = func() (*demo.Stage, error) { return demo.Real(urls) }
	}
	stage, err := open()
	if err != nil {
		return usageError(fmt.Sprintf("demo: --nodes: %v", err))
	}
	defer func() { err = errors.Join(err, stage.Close()) }()
	return demo.Run(ctx, stage, stdout, wantsColor(stdout))
}

// splitNodes takes the value of a command's --nodes apart. Its errors do not repeat the parts: a comma in a password
// would make a part of what must not be shown.
func splitNodes(command, list string) ([]string, error) {
	urls := strings.Split(list, ",")
	for i, u := range urls {
		urls[i] = strings.TrimSpace(u)
		scheme, _, _ := strings.Cut(urls[i], "://")
		switch scheme {
		case "redis", "rediss", "unix":
		default:
			return nil, usageError(fmt.Sprintf("%s: --nodes: part %d of %d is no redis://, rediss:// or unix:// URL: separate the URLs by commas, and write %%2C for a comma in a password",
				command, i+1, len(urls)))
		}
	}
	return urls, nil
}

// wantsColor reports whether w is a terminal, and its user has not opted out (no-color.org).
func wantsColor(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
