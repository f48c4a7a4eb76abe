package embedded

import "bytes"

// LoseMessages drops pub/sub messages on their way to the clients, also those under way, until it
// is called with false. The publisher sees no difference: the messages count as received.
func (s *Server) LoseMessages(lose bool) { s.set(func(f *faults) { f.deaf = lose }) }

// message reports whether a reply is a message on a channel, and not the answer to a SUBSCRIBE.
func (f frame) message() bool {
	return f.push() && bytes.Contains(f.raw[:min(len(f.raw), 32)], []byte("\r\nmessage\r\n"))
}
