package embedded

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Serve connects those who dial l to the server, through its faults, until l is closed. Then it ends
// these connections, and returns. While the server is stalled, this waits for Resume, Close or Kill.
func (s *Server) Serve(l net.Listener) {
	var relays sync.WaitGroup
	defer relays.Wait()
	ctx, end := context.WithCancel(context.Background())
	defer end()
	for {
		outer, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as too many open files
			time.Sleep(10 * time.Millisecond)
			continue
		}
		// While the server is stalled, this waits: further connections stay in the backlog of the
		// system, as with a stopped process.
		inner, err := s.DialContext(context.Background(), "tcp", l.Addr().String())
		if err != nil {
			_ = outer.Close()
			continue
		}
		relays.Go(func() {
			// A client that reads nothing would hold up the relay.
			defer context.AfterFunc(ctx, func() { _ = outer.Close() })()
			relay(outer, inner)
		})
	}
}

// relay copies both ways until one of the connections ends, and closes both.
func relay(a, b net.Conn) {
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(a, b)
		_ = a.Close()
	})
	_, _ = io.Copy(b, a)
	_ = b.Close()
	back.Wait()
}
