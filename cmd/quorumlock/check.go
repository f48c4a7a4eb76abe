package main

import (
	"errors"
	"io"

	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/redlock"
)

type checkCommand struct {
	connection
	JSON bool `name:"json" help:"Print the report as JSON."`
}

func (checkCommand) manual() manual {
	return manual{
		synopsis: "[--nodes URL,URL,...] [--quorum N] [--restart-guard MAXTTL] [--json]",
		description: `Checks whether Redis servers are fit for locks. They must answer, grant a
lock, keep their data over a restart, evict nothing, be different servers with one address each,
have the right time, and have only clients with the same nodes, quorum, database and restart guard.
The check tries each command of a lock in a script that leaves nothing behind.`,
		environment: environment,
		statuses: `0    no findings above advice
1    the nodes are not fit, or too few answered
2    the command line is wrong
130  interrupted`,
		examples: "quorumlock check --nodes redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3",
	}
}

var errUnfit = errors.New("the nodes are not fit for locks as they are")

func (c *checkCommand) Run(e *env) (err error) {
	client, err := c.dial("check")
	if err != nil {
		return err
	}
	defer func() { err = errs.Join(err, client.Close()) }()

	health, err := client.Diagnose(e.ctx)
	if e.ctx.Err() != nil {
		return e.ctx.Err()
	}
	if e := c.print(e.text, health); e != nil {
		return e
	}
	if err == nil && !health.OK() {
		err = errUnfit
	}
	return err
}

func (c *checkCommand) print(w io.Writer, health redlock.Report) error {
	if !c.JSON {
		_, err := io.WriteString(w, health.String())
		return err
	}
	return writeJSON(w, struct {
		OK bool `json:"ok"`
		redlock.Report
	}{health.OK(), health})
}
