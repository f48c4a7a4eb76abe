package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/internal/errs"
)

type leaderCommand struct {
	connection
	Name  string        `arg:"" help:"The name of the election's lock, without the prefix."`
	Watch bool          `help:"Continue, and print every change."`
	JSON  bool          `name:"json" help:"Print JSON; with --watch, one line for each change."`
	TTL   time.Duration `default:"10s" placeholder:"D" help:"The TTL of the candidates: it decides whether the answer is sure."`
}

func (leaderCommand) manual() manual {
	return manual{
		synopsis: "NAME [--watch] [--json] [flags]",
		description: `Shows the leader of an election, and the leader's value, such as its address.
It changes nothing.

The answer is sure if a quorum of the nodes has this leader and this value. Otherwise it is the best
guess, and is marked as such.`,
		environment: environment,
		statuses:    "0    there is a leader\n1    no leader, or the name is no lock or of another kind\n2    the command line is wrong\n122  no quorum: too few nodes answered\n130  interrupted",
		examples:    "quorumlock leader myapp:leader --json | jq -r .leader.value",
	}
}

func (c *leaderCommand) Run(e *env) (err error) {
	client, err := c.dial("leader", quorumlock.WithTTL(c.TTL))
	if err != nil {
		return err
	}
	defer func() { err = errs.Join(err, client.Close()) }()
	if err := quorumlock.ValidateName(c.Prefix + c.Name); err != nil {
		return usageError("leader: " + err.Error())
	}
	vote := election.New(client.Mutex(c.Name), "")
	if !c.Watch {
		leader, err := vote.Leader(e.ctx)
		if e.ctx.Err() != nil {
			return e.ctx.Err()
		}
		return errs.Join(err, c.print(e.text, leader, err))
	}
	for leader, err := range vote.Observe(e.ctx) {
		if e := c.print(e.text, leader, err); e != nil {
			return e
		}
		if errors.Is(err, quorumlock.ErrClosed) {
			return err
		}
	}
	return e.ctx.Err()
}

// print prints the leader, or that there is none.
func (c *leaderCommand) print(w io.Writer, l election.Leader, err error) error {
	if c.JSON {
		return writeJSON(w, struct {
			Name   string          `json:"name"`
			Leader election.Leader `json:"leader,omitzero"`
			Error  string          `json:"error,omitempty"`
		}{c.Name, l, errorText(err)})
	}
	if l.Owner == "" {
		if errors.Is(err, election.ErrNoLeader) {
			_, err = fmt.Fprintf(w, "%s: nobody leads\n", shown(c.Name))
			return err
		}
		_, err = fmt.Fprintf(w, "%s: not known: %s\n", shown(c.Name), errorText(err))
		return err
	}
	doubt := ""
	if !l.Sure {
		doubt = ", not sure"
	}
	_, err = fmt.Fprintf(w, "%s: led by %s, value %s, token %d, at %d nodes of the %d needed%s\n",
		shown(c.Name), who(l.Owner), shown(l.Value), l.Token, l.Nodes, l.Needed, doubt)
	return err
}
