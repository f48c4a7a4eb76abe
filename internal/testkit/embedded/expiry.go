package embedded

import (
	"fmt"
	"io"
	"time"
)

// LogExpiry makes the server write a line for every key of a script that has run, before the
// script's reply: the expiry of the key in Unix milliseconds, and the quoted key. Keys without an
// expiry have no line. Like the append-only file of Redis, the log shows the end of a lock even
// while the process is stopped.
func (s *Server) LogExpiry(w io.Writer) {
	s.lua.mu.Lock()
	defer s.lua.mu.Unlock()
	s.lua.expiry = w
}

// logExpiry must be called with lua.mu held, so that lines are in the order of the scripts.
func (s *Server) logExpiry(keys []string) {
	if s.lua.expiry == nil {
		return
	}
	for _, key := range keys {
		if left := s.Redis.TTL(key); left > 0 {
			_, _ = fmt.Fprintf(s.lua.expiry, "%d %q\n", time.Now().Add(left).UnixMilli(), key)
		}
	}
}
