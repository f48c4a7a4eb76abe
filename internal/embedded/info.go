package embedded

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/quorumlock/quorumlock"
)

// info is what a server says of itself.
type info struct {
	started         time.Time
	run             string // another one after every start
	replid, replid2 string // another history after every start and promotion; the one before, of a replica
	denied          []string
}

const noReplid = "0000000000000000000000000000000000000000"

// born is called when the server starts.
func (s *Server) born() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info = info{started: time.Now(), run: newID(), replid: newID(), replid2: noReplid, denied: s.info.denied}
}

// Promote makes the server say that it was a replica and is a master from now on.
func (s *Server) Promote() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info.replid, s.info.replid2 = newID(), s.info.replid
}

// Deny refuses commands from now on, within scripts too, as if the user had no permission for them.
func (s *Server) Deny(commands ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.info.denied = commands
}

// answer answers the commands that miniredis has not, or not in full.
func (s *Server) answer(c *server.Peer, cmd string, args ...string) bool {
	s.mu.Lock()
	i := s.info
	s.mu.Unlock()
	switch {
	case slices.Contains(i.denied, strings.ToLower(cmd)):
		c.WriteError("NOPERM this user has no permissions to run the '" + strings.ToLower(cmd) + "' command")
	case cmd == "INFO" && len(args) == 1 && args[0] == "server":
		c.WriteBulk(fmt.Sprintf("# Server\r\nrun_id:%s\r\nuptime_in_seconds:%d\r\n", i.run, uptime(i.started)))
	case cmd == "INFO" && len(args) == 1 && args[0] == "replication":
		c.WriteBulk(fmt.Sprintf("# Replication\r\nrole:master\r\nmaster_replid:%s\r\nmaster_replid2:%s\r\n", i.replid, i.replid2))
	default:
		return false
	}
	return true
}

// uptime is in whole seconds of a clock that has no parts of them, as in Redis.
func uptime(started time.Time) int64 { return time.Now().Unix() - started.Unix() }

// newID returns 40 hexadecimal digits.
func newID() string {
	return strings.ReplaceAll(quorumlock.NewID()+quorumlock.NewID(), "-", "")[:40]
}
