package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/settings"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// Stage is the nodes on which the demo plays, and clients of them. It is for one run.
type Stage struct {
	about   string
	servers []*embedded.Server // the nodes that can be harmed; none if they are real
	dial    func() ([]*node.Node, error)
	ttl     time.Duration       // of the locks
	opts    []quorumlock.Option // of the clients
	name    string              // of the lock: nobody else's
	nodes   []*node.Node        // the director's
	watcher *redlock.Client     // over nodes; it looks, and takes no locks
	workers [workers]*redlock.Client
	entered bool // all nodes answered, so that there may be something to wipe
}

const (
	workers  = 5                // contend for the lock
	patience = 10 * time.Second // until a worker that does not get the lock counts as stuck
)

// Embedded returns a stage of five nodes inside the process.
func Embedded() (*Stage, error) {
	s := &Stage{about: "five nodes inside this process", ttl: 800 * time.Millisecond}
	for i := range 5 {
		s.servers = append(s.servers, embedded.Start(fmt.Sprintf("node-%d", i+1)))
	}
	s.dial = func() ([]*node.Node, error) {
		nodes := make([]*node.Node, len(s.servers))
		for i, server := range s.servers {
			var err error
			if nodes[i], err = server.Node(); err != nil {
				return nil, err
			}
		}
		return nodes, nil
	}
	return s, s.connect()
}

// Real returns a stage of the nodes at urls, without connecting to them yet. An error means that
// the URLs cannot be used; it holds no password.
func Real(urls []string) (*Stage, error) {
	s := &Stage{
		about: fmt.Sprintf("%d nodes given", len(urls)),
		ttl:   2 * time.Second,
		// They may be far away.
		opts: []quorumlock.Option{quorumlock.WithNodeTimeout(500 * time.Millisecond)},
	}
	s.dial = func() ([]*node.Node, error) {
		nodes := make([]*node.Node, len(urls))
		for i, url := range urls {
			var err error
			if nodes[i], err = node.Dial(url); err != nil {
				return nil, fmt.Errorf("node %d: %w", i+1, err)
			}
		}
		return nodes, nil
	}
	return s, s.connect()
}

// connect makes the clients: one for every worker, as if each were a process of its own.
func (s *Stage) connect() (err error) {
	s.name = "quorumlock-demo:" + settings.NewID()
	s.opts = append(s.opts, quorumlock.WithTTL(s.ttl), quorumlock.WithWait(patience))
	if s.nodes, s.watcher, err = s.client(); err != nil {
		return err
	}
	for i := range s.workers {
		if _, s.workers[i], err = s.client(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stage) client() ([]*node.Node, *redlock.Client, error) {
	nodes, err := s.dial()
	if err != nil {
		return nil, nil, err
	}
	c, err := redlock.New(nodes, s.opts...)
	return nodes, c, err
}

// reachable returns an error that names every node which does not answer.
func (s *Stage) reachable(ctx context.Context) error {
	in, err := s.watcher.Inspect(ctx, s.name)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var failed []error
	for _, n := range in.Nodes {
		if n.Err != nil {
			failed = append(failed, n.Err)
		}
	}
	if len(failed) == 0 {
		s.entered = err == nil
		return err
	}
	return fmt.Errorf("%d of %d nodes cannot be used: start them, or leave them out of --nodes: %w",
		len(failed), len(s.nodes), errs.Join(failed...))
}

// Close ends the clients, deletes the demo's keys on nodes that outlive it, and returns when no
// goroutine is left.
func (s *Stage) Close() error {
	var failed []error
	wipe := s.entered && len(s.servers) == 0
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, c := range s.workers {
		switch {
		case c == nil:
		case wipe:
			_ = c.Shutdown(ctx) // a late call could run after the wipe; the wipe reports dead nodes
		default:
			failed = append(failed, c.Close())
		}
	}
	if wipe {
		failed = append(failed, s.wipe())
	}
	if s.watcher != nil {
		failed = append(failed, s.watcher.Close())
	}
	for _, server := range s.servers {
		server.Close()
	}
	return errs.Join(failed...)
}

// wipe deletes all keys of the lock. Otherwise the token counter would stay for minutes.
func (s *Stage) wipe() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var failed []error
	for _, n := range s.nodes {
		for _, key := range []string{s.name, wire.TokenKey(s.name), wire.QueueKey(s.name), wire.EntriesKey(s.name)} {
			if err := n.Client().Del(ctx, key).Err(); err != nil {
				failed = append(failed, fmt.Errorf("%s may have %s for some minutes: delete it: %w", n, key, err))
				break
			}
		}
	}
	return errs.Join(failed...)
}
