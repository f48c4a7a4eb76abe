package main

import (
	"fmt"
	"strings"

	"github.com/quorumlock/quorumlock/internal/errs"
)

type listCommand struct {
	connection
	Pattern string `arg:"" optional:"" help:"A pattern of names, as in Redis."`
	Limit   int    `default:"1000" placeholder:"N" help:"The maximum number of locks; 0 for all."`
	JSON    bool   `name:"json" help:"Print one line of JSON for each lock."`
}

func (listCommand) manual() manual {
	return manual{
		synopsis: "[PATTERN] [--limit N] [--json] [flags]",
		description: `Lists the locks that are held or have waiters, in no order. A pattern has *, ?
and [abc], as in the KEYS command of Redis; quote it against the shell. Without a pattern it lists
all.

It searches the keys of N-Q+1 nodes with SCAN, a thousand keys at a time and with pauses, and prints
each lock at once. So on a server with millions of other keys it takes long, but does not block the
server. It changes nothing.`,
		environment: environment,
		statuses:    statuses,
		examples: `quorumlock list 'myapp:lock:*'
quorumlock list --limit 0 --json | jq -r 'select(.state.waiting > 100).name'`,
	}
}

func (c *listCommand) Run(e *env) (err error) {
	if c.Limit < 0 {
		return usageError(fmt.Sprintf("list: --limit %d is negative: use a number, or 0 for all", c.Limit))
	}
	client, err := c.dial("list")
	if err != nil {
		return err
	}
	defer func() { err = errs.Join(err, client.Close()) }()
	s := newSurvey(client, c.Pattern, c.Limit)
	err = s.run(e.ctx, func(v lockView) error {
		if c.JSON {
			v.Nodes = nil // inspect has them
			return writeJSON(e.text, v)
		}
		if s.Locks == 0 {
			if _, err := fmt.Fprint(e.text, row("NAME", "KIND", "HOLDER", "TTL", "TOKEN", "WAITING", "DATA")); err != nil {
				return err
			}
		}
		_, err := fmt.Fprint(e.text, row(shown(v.Name), v.Kind, v.holder(), seconds(v.State.TTL), fmt.Sprint(v.State.Token), fmt.Sprint(v.State.Waiting), v.data()))
		return err
	})
	if e.ctx.Err() != nil {
		return e.ctx.Err()
	}
	if s.Locks == 0 && err == nil {
		_, _ = fmt.Fprintln(e.stderr, "quorumlock: "+c.none())
	}
	for _, f := range s.Failed {
		_, _ = fmt.Fprintln(e.stderr, "quorumlock: "+errorText(f))
	}
	if s.More {
		_, _ = fmt.Fprintf(e.stderr, "quorumlock: these are the first %d: use a pattern, or --limit 0 for all\n", c.Limit)
	}
	return err
}

// none returns the message for an empty list.
func (c *listCommand) none() string {
	if c.Pattern == "" {
		return "no lock is held or waited for"
	}
	return fmt.Sprintf("no lock that is held or waited for matches %q", c.Pattern)
}

// row returns a line of list. The columns have fixed widths, because later rows are unknown when a
// row is printed. Longer texts push the rest to the right.
func row(name, kind, holder, ttl, token, waiting, data string) string {
	return strings.TrimRight(fmt.Sprintf("%-40s  %-9s  %-24s  %6s  %16s  %-7s  %s", name, kind, holder, ttl, token, waiting, data), " ") + "\n"
}
