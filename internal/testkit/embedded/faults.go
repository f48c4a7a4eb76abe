package embedded

import (
	"context"
	"errors"
	"net"
	"time"
)

// faults has the present faults of a server, or of a path to one.
type faults struct {
	down      bool          // connections are refused
	stalled   bool          // requests wait, and run later; nothing is answered
	muted     bool          // requests run; replies wait
	lost      bool          // requests are dropped; their connections never answer again
	delay     time.Duration // each way
	loseReply int           // number of replies to scripts to lose, after the script ran
	deaf      bool          // pub/sub messages are dropped on the way back
	refuses   bool          // new connections are refused while requests or replies are held back
}

// Kill cuts all connections and refuses new ones. The data stays.
func (s *Server) Kill() {
	s.set(func(f *faults) { f.down = true })
	s.cut()
}

// Restart starts a killed server again, with its data or without. Its script cache is empty.
func (s *Server) Restart(keepData bool) {
	s.Kill()
	if !keepData {
		s.Redis.FlushAll()
	}
	s.FlushScripts()
	s.born()
	s.set(func(f *faults) { f.down = false })
}

// Stall holds back every request until Resume; then they run, late.
func (s *Server) Stall() { s.set(func(f *faults) { f.stalled = true }) }

// Mute lets requests run and holds back every reply until Resume: the way back is cut.
func (s *Server) Mute() { s.set(func(f *faults) { f.muted = true }) }

// Lose drops every request until Resume, and lets their connections hang. Requests on new
// connections after Resume arrive.
func (s *Server) Lose() { s.set(func(f *faults) { f.lost = true }) }

// Resume ends a Stall, a Mute and a Lose.
func (s *Server) Resume() {
	s.set(func(f *faults) { f.stalled, f.muted, f.lost = false, false, false })
}

// RefuseWhileHeld makes connecting fail at once during a Stall, a Mute and a Lose, from now on.
// go-redis connects a subscription with a mutex held, for which a synctest bubble cannot wait: its
// time would stand still.
func (s *Server) RefuseWhileHeld() { s.set(func(f *faults) { f.refuses = true }) }

// Delay delays each request and each reply by d.
func (s *Server) Delay(d time.Duration) { s.set(func(f *faults) { f.delay = d }) }

// LoseReplies drops the replies to the next n scripts after they ran, and cuts their connections.
func (s *Server) LoseReplies(n int) { s.set(func(f *faults) { f.loseReply = n }) }

// StepClock steps the clock by which the server expires its keys: forward expires them that much
// earlier, backward later.
func (s *Server) StepClock(by time.Duration) {
	if by > 0 {
		s.Redis.FastForward(by)
		return
	}
	for _, k := range s.Redis.Keys() {
		if ttl := s.Redis.TTL(k); ttl > 0 {
			s.Redis.SetTTL(k, ttl-by)
		}
	}
}

// FlushScripts empties the script cache.
func (s *Server) FlushScripts() {
	c, err := s.Redis.Dial()
	if err != nil {
		return
	}
	defer c.Close() //nolint:errcheck // it is a pipe
	_, _ = c.Write([]byte("*2\r\n$6\r\nSCRIPT\r\n$5\r\nFLUSH\r\n"))
	_, _ = c.Read(make([]byte, 64))
}

func (s *Server) set(change func(*faults)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.faults)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) now() (faults, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults, s.changed
}

var errRefused = &net.OpError{Op: "dial", Net: "pipe", Err: errors.New("connection refused")}

// reach waits until a connection can be made.
func (s *Server) reach(ctx context.Context) error {
	for {
		f, changed := s.now()
		held := f.stalled || f.muted || f.lost
		if f.down || held && f.refuses {
			return errRefused
		}
		if !held {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// direction is a direction through a link.
type direction uint8

const (
	there direction = iota
	back
)

// pass waits until a frame that was sent at a time may arrive. It returns false if it never will.
func (s *Server) pass(d direction, sent time.Time) bool {
	for {
		f, changed := s.now()
		wait := time.Until(sent.Add(f.delay))
		switch {
		case f.down:
			return false
		case f.stalled, f.muted && d == back:
			<-changed
		case f.delay > 0 && wait > 0:
			time.Sleep(wait)
		default:
			return true
		}
	}
}

// loses reports whether to drop the reply to a script.
func (s *Server) loses() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults.loseReply == 0 {
		return false
	}
	s.faults.loseReply--
	return true
}
