package main

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// slowProxy forwards connections to a server, with a delay for the client's bytes. Order and rate
// stay the same: the way is long, not narrow.
type slowProxy struct {
	target   string
	delay    time.Duration
	listener net.Listener
	running  sync.WaitGroup // the goroutines that accept and read
	parcels  chan parcel

	delivering sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  []net.Conn
}

func startSlowProxy(target string, delay time.Duration) (*slowProxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &slowProxy{target: target, delay: delay, listener: l, parcels: make(chan parcel, 1<<14)}
	p.running.Go(p.accept)
	p.delivering.Go(p.deliver)
	return p, nil
}

func (p *slowProxy) addr() string { return p.listener.Addr().String() }

// close ends all connections and returns when no goroutine is left.
func (p *slowProxy) close() error {
	err := p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for _, c := range p.conns {
		err = errors.Join(err, ignoreClosed(c.Close()))
	}
	p.mu.Unlock()
	p.running.Wait()
	close(p.parcels)
	p.delivering.Wait()
	return err
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (p *slowProxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		if !p.track(client, server) {
			return
		}
		p.running.Go(func() { p.forward(client, server) })
		p.running.Go(func() { answerTo(client, server) })
	}
}

// track reports whether the proxy is open still, and closes the connections if not.
func (p *slowProxy) track(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		for _, c := range conns {
			_ = c.Close()
		}
		return false
	}
	p.conns = append(p.conns, conns...)
	return true
}

// parcel is the data of one Read.
type parcel struct {
	due  time.Time
	data []byte
	to   net.Conn
}

// deliver writes the parcels of all connections when they are due. All have the same delay, so they
// are due in the order in which they were read. It sleeps as exactly as the machine can.
func (p *slowProxy) deliver() {
	for one := range p.parcels {
		if d := time.Until(one.due); d > 0 {
			holdFor(d)
		}
		if len(one.data) == 0 {
			_ = one.to.Close() // the client has gone
			continue
		}
		_, _ = one.to.Write(one.data) // if the server has gone, its answers end
	}
}

// forward reads from a client until the client is gone.
func (p *slowProxy) forward(client, server net.Conn) {
	for {
		buffer := make([]byte, 16<<10)
		n, err := client.Read(buffer)
		if n > 0 {
			p.parcels <- parcel{time.Now().Add(p.delay), buffer[:n], server}
		}
		if err != nil {
			p.parcels <- parcel{time.Now().Add(p.delay), nil, server}
			return
		}
	}
}

// answerTo copies the server's bytes at once.
func answerTo(client, server net.Conn) {
	_, _ = io.Copy(client, server)
	_ = client.Close()
}
