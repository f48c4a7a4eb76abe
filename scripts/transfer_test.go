package scripts_test

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// The holder, a parked owner, and two who attach, as a cell has them. Only a mutex is passed on.
func TestPassGivesAHoldToOneOwner(t *testing.T) {
	const parked, carol, dave quorumlock.Owner = "p:7.1", "carol:1.1", "dave:1.1"
	at := func(o quorumlock.Owner) quorumlock.Owner { return wire.OfCell(o, 0) }
	s := start(t)
	passed := func(name string, c wire.Call, want wire.Transferred) {
		t.Helper()
		got, err := s.send(c).Transferred()
		if got.OK {
			want.Left = s.data.TTL("x")
		}
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
	}
	yes, again, no := wire.Transferred{OK: true, Token: 100}, wire.Transferred{OK: true, Again: true, Token: 100}, wire.Transferred{}
	held := func(by quorumlock.Owner) wire.Transferred { return wire.Transferred{Other: at(by)} }
	s.grant("x", alice+".0", 1, 100)
	for _, tt := range []struct {
		name  string
		call  wire.Call
		want  wire.Transferred
		owner quorumlock.Owner
		left  time.Duration
	}{
		{"somebody else parks", wire.Park("x", bob, parked, time.Hour, 0), no, alice, ttl},
		{"another cell parks", wire.Park("x", alice, parked, time.Hour, 1), no, alice, ttl},
		{"attach to a hold that is not parked", wire.Attach("x", carol, parked, 100, 0, 0), held(alice), alice, ttl},
		{"park", wire.Park("x", alice, parked, time.Hour, 0), yes, parked, time.Hour},
		{"park again", wire.Park("x", alice, parked, time.Minute, 0), again, parked, time.Hour},
		{"another text", wire.Attach("x", carol, "p:8.1", 100, 0, 0), held(parked), parked, time.Hour},
		{"a text of before a token", wire.Attach("x", carol, parked, 99, 0, 0), no, parked, time.Hour},
		{"as another cell", wire.Attach("x", carol, parked, 100, 0, 1), held(parked), parked, time.Hour},
		{"as another cell, of before a token", wire.Attach("x", carol, parked, 99, 0, 1), wire.Transferred{Token: 100, Other: at(parked)}, parked, time.Hour},
		{"attach", wire.Attach("x", carol, parked, 100, 0, 0), yes, carol, time.Hour},
		{"attach again", wire.Attach("x", carol, parked, 100, 0, 0), again, carol, time.Hour},
		{"another one", wire.Attach("x", dave, parked, 100, 0, 0), held(carol), carol, time.Hour},
		{"another one returns", wire.Return("x", dave, parked, 0, 0), no, carol, time.Hour},
		{"return", wire.Return("x", carol, parked, 0, 0), yes, parked, time.Hour},
		{"attach, late", wire.Attach("x", dave, parked, 100, 0, 0), yes, dave, time.Second},
		{"return, late", wire.Return("x", dave, parked, 0, 0), yes, parked, time.Second},
		{"attach once more", wire.Attach("x", dave, parked, 100, 0, 0), yes, dave, time.Second},
	} {
		if tt.name == "attach, late" {
			s.data.SetTTL("x", time.Second)
		}
		passed(tt.name, tt.call, tt.want)
		s.checkHold("x", at(tt.owner), "1")
		s.checkTTL("x", tt.left)
		s.checkToken("100")
	}
	s.checkRelease(wire.Release("x", at(alice), 1), 0, false)
	s.checkDone(wire.Renew("x", at(alice), time.Hour), false)
	s.checkHold("x", at(dave), "1")
	s.release("x", at(dave), 1)
	passed("attach to a free lock", wire.Attach("x", carol, parked, 100, 0, 0), no)
	s.checkHold("x", "", "")
	s.share(at(alice), ttl)
	passed("park a share", wire.Park("x", alice, parked, time.Hour, 0), no)
}
