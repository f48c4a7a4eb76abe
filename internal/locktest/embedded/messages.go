package embedded

import "bytes"

// LoseMessages makes pub/sub messages vanish on their way to the clients, those that are under way too, until it is
// called with false. Whoever publishes one sees no difference: it counts as received.
func (s *Server) LoseMessages(lose bool) { s.set(func(f *faults) { f.deaf = lose }) }

// message reports whether a reply is a message on a channel, and not the answer to a SUBSCRIBE.
func (f frame) message() bool {
	return f.push() && bytes.Contains(f.raw[:min(len(f.raw), 32)], []byte("\r\nmessage\r\n"))
}
