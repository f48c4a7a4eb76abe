package main

import (
	"errors"
	"net"
	"sync"
	"time"
)

// slowProxy passes connections on to a server, what the client sends later by a delay. The order and
// the rate stay the same: it is a long way, not a narrow one.
type slowProxy struct {
	target   string
	delay    time.Duration
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  []net.Conn
}

func startSlowProxy(target string, delay time.Duration) (*slowProxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &slowProxy{target: target, delay: delay, listener: l}
	p.running.Go(p.accept)
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
		p.running.Go(func() { pass(server, client, p.delay) })
		p.running.Go(func() { pass(client, server, 0) })
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

// parcel is what was read at one time.
type parcel struct {
	due  time.Time
	data []byte
}

// pass copies from one connection to the other, each parcel delay after it was read.
func pass(to, from net.Conn, delay time.Duration) {
	parcels := make(chan parcel, 1024)
	var writing sync.WaitGroup
	writing.Go(func() {
		for p := range parcels {
			time.Sleep(time.Until(p.due))
			if _, err := to.Write(p.data); err != nil {
				_ = from.Close() // ends the reading below
			}
		}
		_ = to.Close()
	})
	for {
		buffer := make([]byte, 16<<10)
		n, err := from.Read(buffer)
		if n > 0 {
			parcels <- parcel{time.Now().Add(delay), buffer[:n]}
		}
		if err != nil {
			break
		}
	}
	close(parcels)
	writing.Wait()
}
