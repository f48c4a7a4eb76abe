package embedded

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/quorumlock/quorumlock/internal/testkit/embedded/redislua"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// lua runs the scripts of one server, one at a time, in an interpreter that is reused. miniredis
// would make a new one for every run, which takes ten times as long as the script.
type lua struct {
	mu     sync.Mutex
	loaded map[string]string // sources by their SHA-1
	expiry io.Writer         // see LogExpiry; nil without a log
}

// interpreters has the idle interpreters of all servers: as many as have ever run at once. A
// sync.Pool would drop some at every garbage collection, and most under the race detector, and a
// new one takes long to make.
var interpreters struct {
	mu   sync.Mutex
	idle []*redislua.Interpreter
}

func borrow() *redislua.Interpreter {
	interpreters.mu.Lock()
	last := len(interpreters.idle) - 1
	if last < 0 {
		interpreters.mu.Unlock()
		return redislua.New()
	}
	defer interpreters.mu.Unlock()
	in := interpreters.idle[last]
	interpreters.idle = interpreters.idle[:last]
	return in
}

func giveBack(in *redislua.Interpreter) {
	interpreters.mu.Lock()
	defer interpreters.mu.Unlock()
	interpreters.idle = append(interpreters.idle, in)
}

// script answers EVAL, EVALSHA and SCRIPT.
func (s *Server) script(c *server.Peer, cmd string, args []string) {
	s.lua.mu.Lock()
	defer s.lua.mu.Unlock()
	if s.lua.loaded == nil {
		s.lua.loaded = make(map[string]string)
	}
	if cmd == "SCRIPT" {
		s.manage(c, args)
		return
	}
	if len(args) < 2 {
		c.WriteError("ERR wrong number of arguments for '" + strings.ToLower(cmd) + "' command")
		return
	}
	keys, err := strconv.Atoi(args[1])
	if err != nil || keys < 0 || keys > len(args)-2 {
		c.WriteError("ERR Number of keys can't be greater than number of args")
		return
	}
	source := args[0]
	if cmd == "EVALSHA" {
		known := false
		if source, known = s.lua.loaded[strings.ToLower(args[0])]; !known {
			c.WriteError("NOSCRIPT No matching script. Please use EVAL.")
			return
		}
	} else {
		s.load(source)
	}
	in := borrow()
	in.Attach(redislua.Node{Redis: s.served, Peer: c, Publish: s.publish, Info: s.tell})
	reply := in.Run(source, args[2:2+keys], args[2+keys:])
	in.Attach(redislua.Node{})
	giveBack(in)
	s.logExpiry(args[2 : 2+keys])
	// Redis returns this before the script runs.
	if bytes.HasPrefix(reply, []byte("-")) && bytes.Contains(reply, []byte("NOAUTH ")) {
		reply = []byte("-NOAUTH Authentication required.\r\n")
	}
	c.WriteRaw(string(reply))
}

// manage answers SCRIPT.
func (s *Server) manage(c *server.Peer, args []string) {
	what := ""
	if len(args) > 0 {
		what = strings.ToUpper(args[0])
	}
	switch {
	case what == "LOAD" && len(args) == 2:
		c.WriteBulk(s.load(args[1]))
	case what == "EXISTS":
		c.WriteLen(len(args) - 1)
		for _, sha := range args[1:] {
			known := 0
			if _, ok := s.lua.loaded[strings.ToLower(sha)]; ok {
				known = 1
			}
			c.WriteInt(known)
		}
	case what == "FLUSH":
		clear(s.lua.loaded)
		c.WriteOK()
	default:
		c.WriteError("ERR unknown subcommand of SCRIPT, or wrong number of arguments")
	}
}

func (s *Server) load(source string) (sha string) {
	sha = wire.SHA1(source)
	s.lua.loaded[sha] = source
	return sha
}

// publish is PUBLISH within a script.
func (s *Server) publish(channel, message string) (receivers int, err error) {
	if err := s.runs("publish"); err != nil {
		return 0, err
	}
	return s.Redis.Publish(channel, message), nil
}

// tell is INFO within a script.
func (s *Server) tell(section string) (string, error) {
	if err := s.runs("info"); err != nil {
		return "", err
	}
	s.mu.Lock()
	i := s.info
	s.mu.Unlock()
	return i.text([]string{section}), nil
}

// runs notes a command of a script that the interpreter runs itself. It returns an error if the
// permission is missing.
func (s *Server) runs(command string) error {
	s.mu.Lock()
	note, denied := s.hooks.command, slices.Contains(s.info.denied, command)
	s.mu.Unlock()
	if note != nil {
		note(strings.ToUpper(command))
	}
	if denied {
		return errors.New(noPermission(command))
	}
	return nil
}

func noPermission(command string) string {
	return "NOPERM this user has no permissions to run the '" + command + "' command"
}
