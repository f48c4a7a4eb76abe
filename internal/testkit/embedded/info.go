package embedded

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/quorumlock/quorumlock/internal/settings"
)

// info is the server's description of itself.
type info struct {
	started time.Time // by the server's clock
	run     string    // changes at every start
	// replid changes at every start and promotion. replid2 is the one before, of a promoted
	// replica.
	replid, replid2 string
	denied          []string
	refusal         string            // error for all scripts; empty if they run
	settings        map[string]string // set by Configure
	clock           time.Duration     // lead over the true clock
}

const noReplid = "0000000000000000000000000000000000000000"

// born must be called when the server starts.
func (s *Server) born() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info = info{started: time.Now().Add(s.info.clock), run: newID(), replid: newID(), replid2: noReplid, denied: s.info.denied, refusal: s.info.refusal, settings: s.info.settings, clock: s.info.clock}
}

// Promote makes the server report that it was a replica and is a master from now on.
func (s *Server) Promote() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info.replid, s.info.replid2 = newID(), s.info.replid
}

// Retire gives the server another replication ID, like a master that has had no replica for an
// hour.
func (s *Server) Retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info.replid, s.info.replid2 = newID(), noReplid
}

// Deny refuses commands from now on, within scripts too, as for a user without permission.
func (s *Server) Deny(commands ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info.denied = commands
}

// Refuse answers every script with an error from now on, such as READONLY or MOVED, and runs none.
// With "" it runs them again.
func (s *Server) Refuse(with string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info.refusal = with
}

// Configure sets the reported value of a setting. Nothing else changes.
func (s *Server) Configure(setting, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info.settings = maps.Clone(s.info.settings)
	if s.info.settings == nil {
		s.info.settings = make(map[string]string)
	}
	s.info.settings[setting] = value
}

// TellTime makes the server report a time that is ahead of the true one.
func (s *Server) TellTime(ahead time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info.clock = ahead
}

// answer answers the commands that miniredis lacks, or has only in part.
func (s *Server) answer(c *server.Peer, cmd string, args ...string) bool {
	s.mu.Lock()
	i, note := s.info, s.hooks.command
	s.mu.Unlock()
	if note != nil {
		note(cmd)
	}
	switch {
	case slices.Contains(i.denied, strings.ToLower(cmd)):
		c.WriteError(noPermission(strings.ToLower(cmd)))
	case i.refusal != "" && (cmd == "EVAL" || cmd == "EVALSHA"):
		c.WriteError(i.refusal)
	case cmd == "EVAL" || cmd == "EVALSHA" || cmd == "SCRIPT":
		s.script(c, cmd, args)
	case cmd == "ASKING": // as a server of a cluster
		c.WriteOK()
	case cmd == "INFO":
		c.WriteBulk(i.text(args))
	case cmd == "CONFIG" && len(args) == 2 && strings.EqualFold(args[0], "get"):
		c.WriteMapLen(1)
		c.WriteBulk(args[1])
		c.WriteBulk(i.setting(args[1]))
	case cmd == "CONFIG" && len(args) == 3 && strings.EqualFold(args[0], "set"):
		s.Configure(args[1], args[2])
		c.WriteOK()
	case cmd == "CLIENT" && len(args) == 1 && strings.EqualFold(args[0], "list"):
		c.WriteBulk(s.clients())
	case cmd == "CLIENT" && len(args) == 1 && strings.EqualFold(args[0], "id"):
		c.WriteInt(42) // as in miniredis's reply to HELLO
	case cmd == "CLIENT" && len(args) == 2 && strings.EqualFold(args[0], "setname"):
		s.name(c, args[1])
		c.WriteOK()
	case cmd == "TIME" && i.clock != 0:
		now := time.Now().Add(i.clock)
		c.WriteLen(2)
		c.WriteBulk(fmt.Sprint(now.Unix()))
		c.WriteBulk(fmt.Sprint(now.Nanosecond() / 1000))
	default:
		return false
	}
	return true
}

// name records the name that a connection sets.
func (s *Server) name(c *server.Peer, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil {
		s.names = make(map[*server.Peer]string)
	}
	s.names[c] = name
	c.OnDisconnect(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.names, c)
	})
}

// clients returns the reply to CLIENT LIST, with the connections that have a name.
func (s *Server) clients() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, name := range s.names {
		fmt.Fprintf(&b, "id=1 addr=127.0.0.1:1 name=%s age=0\n", name)
	}
	return b.String()
}

// text returns the reply to INFO, whole or one section of it.
func (i *info) text(section []string) string {
	var b strings.Builder
	for _, s := range []struct{ name, fields string }{
		{"server", fmt.Sprintf("redis_version:%s\r\nredis_mode:%s\r\nserver_mode:%s\r\nrun_id:%s\r\nuptime_in_seconds:%d\r\n", i.setting("version"), i.setting("redis_mode"), i.setting("server_mode"), i.run, i.uptime())},
		{"memory", fmt.Sprintf("maxmemory:%s\r\nmaxmemory_policy:%s\r\n", i.setting("maxmemory"), i.setting("maxmemory-policy"))},
		{"persistence", fmt.Sprintf("aof_enabled:%d\r\n", strings.Count(i.setting("appendonly"), "yes"))},
		{"replication", fmt.Sprintf("role:%s\r\nconnected_slaves:%s\r\nmaster_replid:%s\r\nmaster_replid2:%s\r\n", i.setting("role"), i.setting("connected_slaves"), i.replid, i.replid2)},
	} {
		if len(section) == 0 || section[0] == s.name {
			fmt.Fprintf(&b, "# %s\r\n%s\r\n", s.name, s.fields)
		}
	}
	return b.String()
}

// setting returns the configured value, or the best one for locks.
func (i *info) setting(name string) string {
	if v, ok := i.settings[name]; ok {
		return v
	}
	return map[string]string{"version": "7.0.15", "redis_mode": "standalone", "role": "master", "maxmemory": "0", "maxmemory-policy": "noeviction",
		"appendonly": "yes", "appendfsync": "always", "save": "", "no-appendfsync-on-rewrite": "no", "connected_slaves": "0"}[name]
}

// uptime returns the difference of two readings of the clock in whole seconds. As in Redis, a step
// of the clock moves it.
func (i *info) uptime() int64 { return time.Now().Add(i.clock).Unix() - i.started.Unix() }

// newID returns 40 hexadecimal digits.
func newID() string {
	return strings.ReplaceAll(settings.NewID()+settings.NewID(), "-", "")[:40]
}
