package scripts_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// counting are the calls that count, or look after the counter, of one lock.
var counting = map[string]func(s *server){
	"a grant": func(s *server) {
		s.grant("x", alice, 1, 100)
		s.release("x", alice, 1)
		s.grant("x", bob, 1, uint64(s.now.UnixMicro()))
	},
	"a share":       func(s *server) { s.grant("x", alice, 1, 100); s.release("x", alice, 1); s.share(bob, ttl) },
	"a grant again": func(s *server) { s.grant("x", alice, 1, 100); s.grant("x", alice, 2, 100) },
	"a long grant":  func(s *server) { s.acquired(wire.Acquire("x", bob, 30*day, 1, 100)) },
	"a renewal":     func(s *server) { s.grant("x", alice, 1, 100); s.do(wire.Renew("x", alice, ttl)) },
	"a downgrade":   func(s *server) { s.grant("x", alice, 1, 100); s.do(wire.Downgrade("x", alice, ttl)) },
	"a raise": func(s *server) {
		a := s.grant("x", alice, 1, 100)
		s.do(wire.Raise("x", alice, ttl, a.Token, a.Token+50))
	},
	"a share's raise": func(s *server) { s.share(bob, ttl); s.do(wire.Raise("x", bob, ttl, 41, 1<<50).Shared()) },
	"a restore":       func(s *server) { s.do(wire.Restore("x", alice, ttl, 1<<50)) },
	"a share kept":    func(s *server) { s.do(wire.Restore("x", alice, ttl, 1<<50).Shared()) },
	"a handoff":       func(s *server) { s.grant("x", alice, 1, 100); s.standWith("bob:1", 200, 1); s.release("x", alice, 1) },
}

// Redisson's fenced locks make counters that have no expiry. If one of ours gave them one, Java's
// tokens would begin at 1 again. Nobody shortens what was set for years. What is about to expire is
// kept for a minute longer than the lock.
func TestACounterIsNeverKeptForLess(t *testing.T) {
	const years = 3650 * day
	for before, want := range map[time.Duration]func(kept, lock time.Duration) bool{
		0:           func(kept, _ time.Duration) bool { return kept == 0 },
		years:       func(kept, _ time.Duration) bool { return kept == years },
		time.Second: func(kept, lock time.Duration) bool { return kept >= lock+time.Minute },
	} {
		for name, counts := range counting {
			t.Run(fmt.Sprint(name, " of one that was kept for ", before), func(t *testing.T) {
				s := start(t)
				s.setClock(today)
				s.putFor(wire.TokenKey("x"), "41", before)
				counts(s)
				if kept, lock := s.data.TTL(wire.TokenKey("x")), s.data.TTL("x"); !want(kept, lock) {
					t.Errorf("it expires in %v, and the lock in %v", kept, lock)
				}
				if token, _ := s.data.Get(wire.TokenKey("x")); token == "" || token == "41" && name != "a share kept" && !strings.HasSuffix(name, "share") {
					t.Errorf("the token is %q", token)
				}
			})
		}
	}
}

// A token that comes late, such as that of a restored hold, may be lower than those of a counter that
// has ended. So it makes no counter, and changes one that is there only upwards.
func TestAnOldTokenMakesNoCounter(t *testing.T) {
	old := uint64(today.Add(-time.Minute).UnixMicro()) - 1
	for name, late := range map[string]func(s *server, token uint64){
		"a restored hold":  func(s *server, token uint64) { s.do(wire.Restore("x", alice, ttl, token)) },
		"a restored share": func(s *server, token uint64) { s.do(wire.Restore("x", alice, ttl, token).Shared()) },
		"a share's raise": func(s *server, token uint64) {
			s.share(bob, ttl)
			s.data.Del(wire.TokenKey("x"))
			s.checkDone(wire.Raise("x", bob, ttl, 41, token).Shared(), true)
		},
		"a restored slot": func(s *server, token uint64) { s.do(wire.Restore("x", "w:1.1", ttl, token).At(7).OfSemaphore(1, 0)) },
	} {
		for token, counts := range map[uint64]bool{old: false, old + 1: true} {
			t.Run(fmt.Sprintf("%s, %v", name, counts), func(t *testing.T) {
				s := start(t)
				s.setClock(today)
				late(s, token)
				if s.data.Exists(wire.TokenKey("x")) != counts {
					t.Errorf("a counter is there: %v", !counts)
				}
			})
		}
	}
}

// A counter whose text INCRBY does not take is replaced, as long as it is a number.
func TestACounterThatIsNoIntegerGoesOn(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{0: 0, time.Second: kept, 100 * day: 100 * day} {
		s := start(t)
		s.putFor(wire.TokenKey("x"), "41.5", left)
		s.grant("x", alice, 1, 100)
		s.checkToken("100")
		s.checkTTL(wire.TokenKey("x"), want)
	}
}
