package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
)

type inspectCommand struct {
	connection
	Name  string `arg:"" help:"The name of the lock, without the prefix."`
	Watch bool   `help:"Continue, and print every change of the holders."`
	JSON  bool   `name:"json" help:"Print JSON; with --watch, one line for each change."`
}

func (inspectCommand) manual() manual {
	return manual{
		synopsis: "NAME [--watch] [--json] [flags]",
		description: `Shows the holder or the slots of a lock, the holder's data, the remaining time
without renewals, the last fencing token, the waiters with their waiting times, and the state at
each node. It changes nothing. Of a long queue it shows the first hundred.

The nodes do not store the time of the grant. quorumlock top shows how long it has seen the holder.`,
		environment: environment,
		statuses:    statuses,
		examples: `quorumlock inspect myapp:lock:invoice:1042
quorumlock inspect myapp:lock:invoice:1042 --json | jq -r .state.owner`,
	}
}

func (c *inspectCommand) Run(e *env) (err error) {
	client, err := c.dial("inspect")
	if err != nil {
		return err
	}
	defer func() { err = errs.Join(err, client.Close()) }()
	if err := quorumlock.ValidateName(c.Prefix + c.Name); err != nil {
		return usageError("inspect: " + err.Error())
	}
	if c.Watch {
		return c.watch(e, client)
	}
	v, err := client.inspect(e.ctx, c.Name)
	if e.ctx.Err() != nil {
		return e.ctx.Err()
	}
	if len(v.Nodes) == 0 {
		return err
	}
	return errs.Join(err, c.print(e.text, v))
}

// watch prints each change of the holders.
func (c *inspectCommand) watch(e *env, client *cluster) error {
	for in, err := range client.Watch(e.ctx, c.Name) {
		if failed := c.print(e.text, viewOf(c.Name, in, err)); failed != nil {
			return failed
		}
		if other := otherKind(err); other != nil {
			return other
		}
	}
	return e.ctx.Err()
}

func (c *inspectCommand) print(w io.Writer, v lockView) error {
	if c.JSON {
		return writeJSON(w, v)
	}
	return v.print(w)
}

// plural formats a number of things.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// print describes a lock for people.
func (v lockView) print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: ", shown(v.Name))
	switch {
	case v.Kind == kindOther:
		b.WriteString("no lock, but something else\n")
	case !v.Known:
		b.WriteString("not known, since too few nodes answered: somebody may hold it\n")
	case v.State.Owner != "":
		fmt.Fprintf(&b, "held by %s for another %s unless renewed, token %d", who(v.State.Owner), seconds(v.State.TTL), v.State.Token)
		if v.State.HoldCount > 1 {
			fmt.Fprintf(&b, ", entered %d times", v.State.HoldCount)
		}
		fmt.Fprintf(&b, "\n  owner %s\n", shown(string(v.State.Owner)))
		if v.State.Data != "" {
			fmt.Fprintf(&b, "  data %s\n", shown(v.State.Data))
		}
	case len(v.State.Readers) > 0:
		fmt.Fprintf(&b, "shared by %s, last token %d\n", plural(len(v.State.Readers), "reader"), v.State.Token)
	case len(v.State.Slots) > 0:
		fmt.Fprintf(&b, "a semaphore, %s taken\n", v.slotsTaken())
	case v.State.Token > 0:
		fmt.Fprintf(&b, "free, last token %d\n", v.State.Token)
	default:
		b.WriteString("free, and not used in the last few minutes\n")
	}
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, r := range v.State.Readers {
		fmt.Fprintf(t, "  reader %s\tfor another %s\n", who(r.Owner), seconds(r.TTL))
	}
	for _, s := range v.State.Slots {
		fmt.Fprintf(t, "  slot %d\t%s\tfor another %s\ttoken %d\n", s.Number, who(s.Owner), seconds(s.TTL), s.Token)
	}
	_ = t.Flush() // into memory
	if v.State.Waiting > 0 {
		fmt.Fprintf(&b, "%d in the queue\n", v.State.Waiting)
		for i, q := range v.State.Queue {
			what := ""
			if q.Reader {
				what = "\tto read"
			}
			if q.Callers > 1 {
				what += fmt.Sprintf("\t%d calls", q.Callers)
			}
			fmt.Fprintf(t, "  %d.\t%s\twaits %s%s\n", i+1, who(q.Owner), seconds(v.Waits(q)), what)
		}
		_ = t.Flush()
		if left := v.State.Waiting - len(v.State.Queue); left > 0 {
			fmt.Fprintf(&b, "  and %d more\n", left)
		}
	}
	for _, n := range v.Nodes {
		switch {
		case n.Err != nil:
			fmt.Fprintf(t, "node %s\tfailed: %s\n", n.Node, errorText(n.Err))
		case holds(n.State) == 0:
			fmt.Fprintf(t, "node %s\tfree\ttoken %d\t%d waiting\n", n.Node, n.State.Token, n.State.Waiting)
		default:
			fmt.Fprintf(t, "node %s\theld for %s\ttoken %d\t%d waiting\n", n.Node, seconds(n.State.TTL), n.State.Token, n.State.Waiting)
		}
	}
	_ = t.Flush()
	_, err := io.WriteString(w, b.String())
	return err
}
