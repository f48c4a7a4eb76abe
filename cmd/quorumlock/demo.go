package main

import (
	"fmt"
	"io"
	"os"

	"github.com/quorumlock/quorumlock/cmd/quorumlock/internal/demo"
	"github.com/quorumlock/quorumlock/internal/errs"
)

type demoCommand struct{ sources }

func (demoCommand) manual() manual {
	return manual{
		synopsis: "[--nodes URL,URL,...]",
		description: `Workers share a lock and write to a resource that checks fencing tokens.
Without flags, five nodes run inside the process, which needs nothing else; they are killed, frozen
and revived.

With --nodes the demo runs on these Redis servers, without harm to them. It then shows contention
and a paused holder only, under a lock name of its own, which it deletes at the end. The environment
variables are ignored.`,
		statuses: `0  every promise was kept
1  a promise was broken, or the nodes could not be used
2  the command line is wrong`,
		examples: "quorumlock demo",
	}
}

func (c *demoCommand) Run(e *env) (err error) {
	open := demo.Embedded
	if c.Nodes != nil || c.NodesFile != nil {
		fleet, err := c.fleet("demo")
		if err != nil {
			return err
		}
		open = func() (*demo.Stage, error) { return demo.Real(fleet.Nodes) }
	}
	stage, err := open()
	if err != nil {
		return usageError(fmt.Sprintf("demo: --nodes: %v", err))
	}
	defer func() { err = errs.Join(err, stage.Close()) }()
	return demo.Run(e.ctx, stage, stdoutWriter{e.stdout}, wantsColor(e.stdout))
}

// wantsColor reports whether w is a terminal, and the user has not opted out (no-color.org).
func wantsColor(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(w)
}

// isTerminal reports whether a stream is a character device.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
