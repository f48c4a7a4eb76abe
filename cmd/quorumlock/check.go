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
	type node struct {
		Node        string  `json:"node"`
		Error       string  `json:"error,omitempty"`
		Role        string  `json:"role,omitempty"`
		Version     string  `json:"version,omitempty"`
		UptimeS     int64   `json:"uptime_s"`
		RoundTripMS float64 `json:"round_trip_ms"`
		ClockMS     float64 `json:"clock_offset_ms"`
		AppendFsync string  `json:"appendfsync,omitempty"`
		Save        string  `json:"save,omitempty"`
		NoFsync     bool    `json:"no_appendfsync_on_rewrite"`
		Replicas    int     `json:"replicas"`
		MaxMemory   int64   `json:"maxmemory"`
		Eviction    string  `json:"eviction,omitempty"`
	}
	type finding struct {
		Kind     redlock.FindingKind `json:"kind"`
		Severity string              `json:"severity"`
		Node     string              `json:"node,omitempty"`
		Problem  string              `json:"problem"`
		Fix      string              `json:"fix"`
	}
	report := struct {
		OK       bool      `json:"ok"`
		Quorum   int       `json:"quorum"`
		Nodes    []node    `json:"nodes"`
		Findings []finding `json:"findings"`
	}{OK: health.OK(), Quorum: health.Quorum, Nodes: []node{}, Findings: []finding{}}
	for _, n := range health.Nodes {
		s := n.Status
		report.Nodes = append(report.Nodes, node{n.Node, errorText(n.Err), s.Role, s.Version, int64(s.Uptime.Seconds()), inMS(s.RoundTrip),
			inMS(s.ClockOffset), s.AppendFsync, s.Save, s.NoFsyncOnRewrite, s.Replicas, s.MaxMemory, s.Eviction})
	}
	for _, f := range health.Findings {
		report.Findings = append(report.Findings, finding{f.Kind, string(f.Severity), f.Node, f.Problem, f.Fix})
	}
	return writeJSON(w, report)
}
