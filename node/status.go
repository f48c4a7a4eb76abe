package node

import (
	"context"
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

// Status is what a server says of itself, as far as locks depend on it. A string is empty, and a number
// 0, where the server does not tell: see Untold.
type Status struct {
	Version string
	Role    string        // master, replica or sentinel
	Shard   bool          // the server is part of a cluster, but the node's client is not a cluster client
	RunID   string        // another one after every start: two nodes that share it are one server
	Uptime  time.Duration // in whole seconds

	AppendFsync string // of the append-only file: always, everysec or no; "off" if there is none
	Save        string // when snapshots are made, as the server is configured; "off" if never

	MaxMemory int64  // bytes; 0: no limit
	Eviction  string // maxmemory-policy: which keys are dropped at the limit

	Clients []string // the names of the connections that have one, each name once

	RoundTrip   time.Duration // of one small command
	ClockOffset time.Duration // how far the server's clock is ahead of this process's, give or take half the round trip

	Untold []error // what the server refused to tell, such as for want of a permission
}

// Status asks the server about itself. It returns when ctx is done, or after the node's timeout, with a
// *[quorumlock.NodeError] if the server cannot be asked at all. Of a cluster it asks one server. It
// needs the permissions for TIME, INFO, CONFIG GET and CLIENT LIST; without the latter three it leaves out what they
// tell.
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
	answered := make(chan answer, 1)
	err := transport.Of(n).Locks().Go(func() {
		var a answer
		_, single := n.Client().(*redis.Client)
		if err := transport.Of(n).With(ctx, func(conn redis.Cmdable) { a.s, a.err = status(ctx, conn, single) }); err != nil {
			a.err = err
		}
		answered <- a
	})
	if err != nil {
		return Status{}, err
	}
	a := answer{err: context.DeadlineExceeded}
	select {
	case a = <-answered:
	case <-ctx.Done(): // the goroutine lasts for as long as the client's own timeouts let it
		a.err = ctx.Err()
	}
	if a.err != nil {
		return Status{}, transport.Of(n).Failure(a.err, errors.Is(ctx.Err(), context.DeadlineExceeded))
	}
	return a.s, nil
}

// status asks a server. single is whether the node is not a cluster.
func status(ctx context.Context, client redis.Cmdable, single bool) (Status, error) {
	pipe := client.Pipeline()
	info := pipe.Info(ctx)
	fsync := pipe.ConfigGet(ctx, "appendfsync") // one each: before Redis 7 there is no more to a command
	save := pipe.ConfigGet(ctx, "save")
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
		s.Shard = single && (said["redis_mode"] == "cluster" || said["server_mode"] == "cluster") // the latter is Valkey's
	}
	if err := fsync.Err(); err != nil {
		s.Untold = append(s.Untold, err)
	} else if s.AppendFsync != "off" {
		s.AppendFsync = fsync.Val()["appendfsync"]
	}
	if err := save.Err(); err == nil {
		s.Save = orOff(save.Val()["save"])
	}
	return s, nil
}

// clock compares the server's clock with this process's, over the quickest of a few round trips: it says
// most about the clocks, and is none that had to connect. (Cristian, "Probabilistic
// clock synchronization", 1989.)
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

// read takes what INFO says.
func (s *Status) read(info map[string]string) {
	s.Version = info["redis_version"]
	if v := info["valkey_version"]; v != "" {
		s.Version = v + " (Valkey)"
	}
	s.Role = strings.Replace(info["role"], "slave", "replica", 1)
	s.RunID = info["run_id"]
	if up, err := strconv.ParseInt(info["uptime_in_seconds"], 10, 64); err == nil {
		s.Uptime = time.Duration(up) * time.Second
	}
	if info["aof_enabled"] == "0" {
		s.AppendFsync = "off"
	}
	s.MaxMemory, _ = strconv.ParseInt(info["maxmemory"], 10, 64)
	s.Eviction = info["maxmemory_policy"]
}

// names are those in an answer to CLIENT LIST.
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

// fields takes apart what INFO returns: a line for each field, and headings.
func fields(info string) map[string]string {
	m := make(map[string]string)
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m
}
