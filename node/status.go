package node

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/transport"
)

// Status is the state of a server, as far as locks depend on it. A string is empty and a number 0
// if the server does not report it: see Untold.
type Status struct {
	Version string        `json:"version,omitempty"`
	Role    string        `json:"role,omitempty"`   // master, replica or sentinel
	Shard   bool          `json:"shard,omitempty"`  // the server is part of a cluster; the client is none for clusters
	RunID   string        `json:"run_id,omitempty"` // changes at every start: two nodes with one RunID are one server
	Uptime  time.Duration `json:"uptime_seconds"`   // in whole seconds

	// The appendfsync setting: always, everysec or no; "off" without an append-only file.
	AppendFsync string `json:"append_fsync,omitempty"`
	Save        string `json:"save,omitempty"` // the save setting; "off" without snapshots

	// The setting no-appendfsync-on-rewrite: while the server saves or rewrites a file, it does not
	// sync the append-only file, whatever AppendFsync says.
	NoFsyncOnRewrite bool `json:"no_fsync_on_rewrite"`

	Replicas int `json:"replicas"` // connected replicas

	// Slots of a cluster that CLUSTER SETSLOT moves between servers: locks in them wait.
	MovingSlots int `json:"moving_slots"`

	MaxMemory int64  `json:"max_memory"`         // bytes; 0: no limit
	Eviction  string `json:"eviction,omitempty"` // maxmemory-policy: which keys are evicted at the limit

	Clients []string `json:"-"` // names of connections, each once

	RoundTrip   time.Duration `json:"round_trip_seconds"`   // of one small command
	ClockOffset time.Duration `json:"clock_offset_seconds"` // server's clock minus this process's, to within half the round trip

	Untold []error `json:"untold,omitempty"` // refusals of the server, for example for lack of a permission
}

// MarshalJSON encodes the status with durations in seconds, and without the clients.
func (s Status) MarshalJSON() ([]byte, error) {
	type plain Status
	untold := make([]string, len(s.Untold))
	for i, err := range s.Untold {
		untold[i] = err.Error()
	}
	return json.Marshal(struct {
		plain
		Uptime      float64  `json:"uptime_seconds"`
		RoundTrip   float64  `json:"round_trip_seconds"`
		ClockOffset float64  `json:"clock_offset_seconds"`
		Untold      []string `json:"untold,omitempty"`
	}{plain(s), s.Uptime.Seconds(), s.RoundTrip.Seconds(), s.ClockOffset.Seconds(), untold})
}

// Status reads the state of the server. It returns when ctx is done, or after the node's timeout,
// with a *[quorumlock.NodeError] if the server does not answer at all. Of a cluster it asks one
// server, and all masters for moving slots. It needs the permissions for TIME, INFO, CONFIG GET,
// CLIENT LIST and, for a cluster, CLUSTER NODES. A refusal of any command but TIME is no error: its
// fields are missing, and Untold has the refusal.
func (n *Node) Status(ctx context.Context) (Status, error) {
	type answer struct {
		s   Status
		err error
	}
	if ctx == nil {
		return Status{}, quorumlock.ErrNilContext
	}
	if err := transport.Of(n).Err(); err != nil {
		return Status{}, &quorumlock.NodeError{Node: n.String(), Err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, transport.Of(n).Timeout())
	defer cancel()
	ended := make(chan answer, 1)
	err := transport.Of(n).Locks().Go(func() {
		var a answer
		_, single := n.Client().(*redis.Client)
		if err := transport.Of(n).With(ctx, func(conn redis.Cmdable) { a.s, a.err = status(ctx, conn, single) }); err != nil {
			a.err = err
		}
		if moving, err := transport.Of(n).MovingSlots(ctx); answered(err) {
			a.s.Untold = append(a.s.Untold, err)
		} else {
			a.s.MovingSlots = moving
		}
		ended <- a
	})
	if err != nil {
		return Status{}, err
	}
	a := answer{err: context.DeadlineExceeded}
	select {
	case a = <-ended:
	case <-ctx.Done(): // the goroutine ends by the client's own timeouts
		a.err = ctx.Err()
	}
	if a.err != nil {
		return Status{}, transport.Of(n).Failure(a.err, errors.Is(ctx.Err(), context.DeadlineExceeded))
	}
	return a.s, nil
}

// status reads the state of a server. single reports whether the node is not a cluster.
func status(ctx context.Context, client redis.Cmdable, single bool) (Status, error) {
	pipe := client.Pipeline()
	info := pipe.Info(ctx)
	// One call each: before Redis 7, CONFIG GET takes one name.
	fsync := pipe.ConfigGet(ctx, "appendfsync")
	save := pipe.ConfigGet(ctx, "save")
	rewrite := pipe.ConfigGet(ctx, "no-appendfsync-on-rewrite")
	if _, err := pipe.Exec(ctx); err != nil && !answered(err) {
		return Status{}, err
	}
	s, err := clock(ctx, client)
	if err != nil {
		return Status{}, err
	}
	if options.AsksForClients(ctx) {
		list := client.ClientList(ctx)
		if err := list.Err(); err != nil {
			s.Untold = append(s.Untold, err)
		}
		s.Clients = names(list.Val())
	}
	if err := info.Err(); err != nil {
		s.Untold = append(s.Untold, err)
	} else {
		said := fields(info.Val())
		s.read(said)
		// server_mode is Valkey's.
		s.Shard = single && (said["redis_mode"] == "cluster" || said["server_mode"] == "cluster")
	}
	if err := fsync.Err(); err != nil {
		s.Untold = append(s.Untold, err)
	} else if s.AppendFsync != "off" {
		s.AppendFsync = fsync.Val()["appendfsync"]
	}
	if err := save.Err(); err == nil {
		s.Save = orOff(save.Val()["save"])
	}
	s.NoFsyncOnRewrite = rewrite.Val()["no-appendfsync-on-rewrite"] == "yes"
	return s, nil
}

// clock measures the offset of the server's clock over the quickest of a few round trips: that one
// bounds the error best, and did not have to connect. (Cristian, "Probabilistic clock
// synchronization", 1989.)
func clock(ctx context.Context, client redis.Cmdable) (Status, error) {
	var s Status
	for i := range 3 {
		start := time.Now()
		there, err := client.Time(ctx).Result()
		if err != nil {
			return Status{}, err
		}
		if trip := time.Since(start); i == 0 || trip < s.RoundTrip {
			s.RoundTrip, s.ClockOffset = trip, there.Sub(start.Add(trip/2))
		}
	}
	return s, nil
}

// answered reports whether an error is a server's answer.
func answered(err error) bool {
	_, ok := err.(redis.Error)
	return ok
}

// read takes the fields of INFO.
func (s *Status) read(info map[string]string) {
	s.Version = info["redis_version"]
	if v := info["valkey_version"]; v != "" {
		s.Version = v + " (Valkey)"
	}
	s.Role = strings.Replace(info["role"], "slave", "replica", 1)
	s.RunID = info["run_id"]
	s.Replicas, _ = strconv.Atoi(info["connected_slaves"])
	if up, err := strconv.ParseInt(info["uptime_in_seconds"], 10, 64); err == nil {
		s.Uptime = time.Duration(up) * time.Second
	}
	if info["aof_enabled"] == "0" {
		s.AppendFsync = "off"
	}
	s.MaxMemory, _ = strconv.ParseInt(info["maxmemory"], 10, 64)
	s.Eviction = info["maxmemory_policy"]
}

// names returns the connection names in a reply to CLIENT LIST.
func names(list string) (all []string) {
	for line := range strings.Lines(list) {
		for field := range strings.FieldsSeq(line) {
			if name, ok := strings.CutPrefix(field, "name="); ok && name != "" {
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func orOff(s string) string {
	if s == "" {
		return "off"
	}
	return s
}

// fields parses a reply to INFO, which has headings and one line for each field.
func fields(info string) map[string]string {
	m := make(map[string]string)
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m
}
