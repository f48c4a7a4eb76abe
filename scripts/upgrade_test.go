package scripts_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/engine"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/before"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// upgrade is a fleet of clients of two versions, which share the lock x of four nodes, three of
// which are a quorum. The first node may forget. The clocks are as docs/design/tokens.md demands.
type upgrade struct {
	*testing.T
	*rand.Rand
	nodes   []*server
	clients []*member
	now     time.Time // the true time
	holds   int
	lastOld time.Time // when a client of the version before had the lock
	trace   []string
}

// member is a client of one of the versions.
type member struct {
	number int
	old    bool
	ahead  time.Duration // its clock
	hints  engine.Hints
}

func (u *upgrade) between(a, b time.Duration) time.Duration {
	return a + time.Duration(u.Int64N(int64(b-a)+1))
}

func (u *upgrade) note(format string, args ...any) {
	u.trace = append(u.trace, u.now.Format("15:04:05.000000 ")+fmt.Sprintf(format, args...))
}

func (u *upgrade) wait(d time.Duration) {
	u.now = u.now.Add(d)
	for _, n := range u.nodes {
		n.wait(d)
	}
}

// ask sends a call as the client's version does.
func (u *upgrade) ask(m *member, n int, c wire.Call) wire.Reply {
	if m.old {
		c.Script = before.Script(c.Script)
	}
	return u.nodes[n].do(c)
}

func (u *upgrade) acquire(m *member, n int, owner quorumlock.Owner, hint uint64) wire.Answer {
	a, err := u.ask(m, n, wire.Acquire("x", owner, ttl, 1, hint)).Acquired()
	if err != nil {
		u.Fatal(err)
	}
	return a
}

// hold has a client lock and unlock at some nodes, and returns the token.
func (u *upgrade) hold(m *member, nodes []int) uint64 {
	u.Helper()
	u.holds++
	owner := quorumlock.Owner(fmt.Sprintf("%d:%d.1", m.number, u.holds))
	elapsed := time.Duration(u.now.UnixNano())
	hint := m.hints.Next(u.now.Add(m.ahead).UnixMicro(), elapsed)
	tokens, token := make([]uint64, len(u.nodes)), uint64(0)
	for _, n := range nodes {
		a := u.acquire(m, n, owner, hint)
		u.nodes[n].checkGranted(a)
		tokens[n], token = a.Token, max(token, a.Token)
	}
	u.note("client %d, old %v, ahead by %v, hint %d: tokens %d", m.number, m.old, m.ahead, hint, tokens)
	for _, n := range nodes {
		if tokens[n] < token {
			if ok, err := u.ask(m, n, wire.Raise("x", owner, ttl, tokens[n], token)).Done(); !ok || err != nil {
				u.Errorf("a raise of %d to %d: %v, %v", tokens[n], token, ok, err)
			}
		}
		other := u.clients[u.IntN(len(u.clients))]
		u.nodes[n].checkRefused(u.acquire(other, n, "another:1.1", hint), owner)
	}
	m.hints.Saw(token, elapsed)
	if m.old {
		u.lastOld = u.now
	}
	renews := u.IntN(10) == 0
	if renews {
		u.wait(ttl / 3)
	}
	for _, n := range nodes {
		if renews {
			if ok, err := u.ask(m, n, wire.Renew("x", owner, ttl)).Done(); !ok || err != nil {
				u.Errorf("a renewal: %v, %v", ok, err)
			}
		}
		if _, held, err := u.ask(m, n, wire.Release("x", owner, 1)).Released(); !held || err != nil {
			u.Errorf("a release: held %v, %v", held, err)
		}
	}
	return token
}

// endsInUse tells whether a counter has just ended, or ends soon, that an old client has used. Old
// clients do not look at the expiry of a counter that a new one began.
func (u *upgrade) endsInUse(soon time.Duration) bool {
	for _, n := range u.nodes[1:] {
		if n.data.TTL(wire.TokenKey("x")) < soon && u.now.Sub(u.lastOld) < 2*time.Minute {
			return true
		}
	}
	return false
}

// run plays one random schedule. The clocks of clients differ by at most apart. As much time passes
// between two holds where docs/design/tokens.md demands it.
func (u *upgrade) run(seed uint64, apart time.Duration) {
	u.Rand, u.trace, u.clients = rand.New(rand.NewPCG(seed, 62)), nil, nil
	u.now, u.lastOld = today.Add(u.between(0, time.Hour)), time.Time{}
	for _, n := range u.nodes {
		n.data.FlushAll()
		n.setClock(u.now.Add(u.between(-10*time.Second, 10*time.Second)))
	}
	for i := range 4 {
		u.clients = append(u.clients, &member{number: i, old: i%2 == 0, ahead: u.between(-apart/2, apart/2)})
	}
	last, only := uint64(0), 0
	for i := range 60 {
		if i%20 == 0 {
			only = u.IntN(3) // 0 and 1: most of the next clients are of one version
		}
		if u.IntN(12) == 0 {
			u.nodes[0].data.FlushAll()
			u.note("the first node forgets")
		}
		longest := []time.Duration{0, time.Second, 20 * time.Second, time.Minute, 5 * time.Minute}[u.IntN(5)]
		if u.IntN(20) == 0 {
			longest = []time.Duration{time.Hour, 30 * time.Hour}[u.IntN(2)]
		}
		u.wait(time.Microsecond + u.between(0, longest))
		if u.endsInUse(apart) {
			u.wait(apart + time.Millisecond)
		}
		m := u.clients[u.IntN(4)]
		if only < 2 && u.IntN(8) > 0 {
			m = u.clients[only+2*u.IntN(2)]
		}
		if u.IntN(3) == 0 {
			m.hints = engine.Hints{} // a new process, which has seen no token
		}
		token := u.hold(m, u.Perm(4)[:3+u.IntN(2)])
		if token <= last {
			u.Fatalf("seed %d: token %d after %d\n%s", seed, token, last, strings.Join(u.trace, "\n"))
		}
		last = token
	}
}

// During an upgrade, clients of the version before and of this one share a lock. Tokens rise,
// whoever is next, after any idle time, and if a node forgets. No node grants the lock twice.
func TestTokensRiseDuringAnUpgrade(t *testing.T) {
	u := &upgrade{T: t}
	for range 4 {
		u.nodes = append(u.nodes, start(t))
	}
	for seed := range testkit.Thorough[uint64](3000, 40) {
		u.run(seed, []time.Duration{time.Millisecond, 2 * time.Second, 50 * time.Second}[seed%3])
	}
}

// Old clients do not look at the expiry of the counter that a new one began. When the counter ends,
// the clocks of the clients decide, which agree to within the time between two holds.
func TestTokensRiseWhileOldClientsUseANewCounter(t *testing.T) {
	for _, apart := range []time.Duration{0, time.Second - time.Microsecond} {
		for second := range 2 { // either client may come first when the counter has ended
			u := &upgrade{T: t, Rand: rand.New(rand.NewPCG(1, 1)), now: today}
			for range 3 {
				u.nodes = append(u.nodes, start(t))
				u.nodes[len(u.nodes)-1].setClock(today)
			}
			u.clients = []*member{{number: 0, old: true, ahead: apart / 2}, {number: 1, old: true, ahead: -apart / 2}}
			last := u.hold(&member{number: 2}, []int{0, 1, 2})
			for i := range 300 {
				u.wait(time.Second)
				m := u.clients[(i+second)%2]
				m.hints = engine.Hints{}
				token := u.hold(m, []int{0, 1, 2})
				if token <= last {
					t.Fatalf("%v apart: token %d after %d\n%s", apart, token, last, strings.Join(u.trace[max(0, i-3):], "\n"))
				}
				last = token
			}
		}
	}
}
