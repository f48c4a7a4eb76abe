package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

const checkUsage = `Usage: quorumlock check --nodes URL,URL,... [--quorum N] [--restart-guard MAXTTL]

Asks Redis servers whether they are fit for locks: whether they answer, take writes, keep their data over a
restart, evict nothing, are different servers, and have the right time. Nothing is changed. Ends with status 0
if there is nothing to say but advice, and 1 if not.

  --nodes URL,URL,...      redis://user:password@host:6379/0, rediss:// for TLS, unix:///path/to/socket
  --quorum N               how many must agree, if not a majority: WithQuorum(N)
  --restart-guard MAXTTL   the locks are used with WithRestartGuard(MAXTTL), such as 30s
`

var errUnfit = errors.New("the nodes are not fit for locks as they are")

func runCheck(ctx context.Context, stdout io.Writer, args []string) (err error) {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	list := flags.String("nodes", "", "")
	quorum := flags.Int("quorum", 0, "")
	guard := flags.Duration("restart-guard", 0, "")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		_, err := io.WriteString(stdout, checkUsage)
		return err
	case err != nil:
		return usageError(fmt.Sprintf("check: %v: see quorumlock check -h", err))
	case flags.NArg() > 0 || *list == "": // an argument may be a URL with a password, so it is not repeated
		return usageError("check: give the URLs of nodes as --nodes redis://host:6379,redis://...")
	}
	urls, err := splitNodes("check", *list)
	if err != nil {
		return err
	}
	nodes := make([]*node.Node, len(urls))
	for i, u := range urls {
		if nodes[i], err = node.Dial(u); err != nil {
			return usageError(fmt.Sprintf("check: --nodes: %v", err))
		}
	}
	opts := []quorumlock.Option{quorumlock.WithQuorum(*quorum), quorumlock.WithRestartGuard(*guard)}
	if *guard > 0 {
		opts = append(opts, quorumlock.WithTTL(min(*guard, quorumlock.DefaultTTL)))
	}
	client, err := redlock.New(nodes, opts...)
	if err != nil {
		return usageError(fmt.Sprintf("check: %v", err))
	}
	defer func() { err = errors.Join(err, client.Close()) }()

	health, err := client.Check(ctx)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, e := io.WriteString(stdout, health.String()); e != nil {
		return e
	}
	if err == nil && !health.OK() {
		err = errUnfit
	}
	return err
}
