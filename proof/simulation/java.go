package simulation

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/quorumlock/quorumlock/proof/redisson"
)

// JavaStep is a lock and unlock of x by Redisson.
type JavaStep struct {
	After, Hold time.Duration
}

// java adds a process with Redisson to a plan in which nothing fails, in one seed of twenty. It
// locks x like a RedissonRedLock, at a majority of the nodes. Under faults the end of its hold
// would be unknown: Redisson's clients allow for no drift, look at no validity, learn of no loss,
// and have no tokens. They do not queue, and release a failed attempt only after a while. So with a
// Java process, the order and promptness of grants are not checked.
func (p *Plan) java() {
	g := generator{rand.New(rand.NewPCG(p.Seed, 0x1a5a))}
	if p.Class != calm || p.Idle || !g.chance(0.25) {
		return
	}
	for range 1 + g.IntN(4) {
		p.Java = append(p.Java, JavaStep{g.between(0, p.TTL/2), g.between(0, p.TTL)})
	}
}

// javaProcess makes a process with a client of Redisson's for each node, and a lock of theirs.
func (w *world) javaProcess() (p *process, lock *redisson.MultiLock, end func()) {
	p = &process{world: w, id: "java", java: true, names: make(map[string]string), known: make(map[string]string)}
	var locks []*redisson.Lock
	var ends []func()
	for _, n := range w.nodes {
		path := &path{world: w, proc: p, node: n, conns: make(map[*conn]bool), sent: make(map[string]int)}
		n.paths = append(n.paths, path)
		p.paths = append(p.paths, path)
		r := redis.NewClient(&redis.Options{Addr: n.String(), Dialer: path.dial, Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
		c := redisson.New(r)
		c.ID = "8743c9c0-0795-4907-87fd-6c719a6b4586" // the same in every run
		locks = append(locks, c.Lock("x"))
		ends = append(ends, c.Close, func() { _ = r.Close() })
	}
	return p, redisson.NewRedLock(locks...), func() {
		for _, end := range ends {
			end()
		}
	}
}

// useJava runs the plan of the Java process.
func (w *world) useJava(k *worker, lock *redisson.MultiLock) {
	for _, s := range w.plan.Java {
		if w.now() > w.plan.Length || !k.rest(context.Background(), s.After) {
			return
		}
		if err := lock.Lock(context.Background()); err != nil {
			w.violate(nothingFails, "Java cannot lock x: %v", err)
			return
		}
		w.mu.Lock()
		w.trace("java: has x")
		w.inJava = true
		for _, h := range w.watch.holds {
			if h.live() && slices.Contains(h.names, "x") {
				w.violateLocked(mutualExclusion, "Java was granted x while %s holds it for %v yet", h.owner, h.left())
			}
		}
		w.mu.Unlock()
		k.rest(context.Background(), s.Hold)
		w.mu.Lock()
		w.trace("java: releases x")
		w.inJava = false
		w.mu.Unlock()
		lock.Unlock(context.Background())
	}
}

// besideJava checks that x is not granted while Java has it. The world's mutex must be held.
func (t *watch) besideJava(h *hold) {
	if t.world.inJava && slices.Contains(h.names, "x") {
		t.world.violateLocked(mutualExclusion, "%s was granted x while Java has it", h.owner)
	}
}

// java takes a script of Redisson's.
func (n *node) java(m message) {
	source := m.args[1]
	if m.args[0] == "eval" {
		sum := sha1.Sum([]byte(source))
		n.loaded[hex.EncodeToString(sum[:])] = source
	} else if source = n.loaded[source]; source == "" {
		n.reply(m, []byte("-NOSCRIPT No matching script.\r\n"))
		return
	}
	reply := n.in.Run(source, m.keys, m.argv)
	n.world.trace(fmt.Sprintf("%v: a script of Java's -> %.20q", n, reply))
	n.reply(m, reply)
}
