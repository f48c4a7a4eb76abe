package engine

import (
	"testing"
	"time"
)

func TestEndedCallsAreRememberedForATimeAndNotByTheirNumber(t *testing.T) {
	var e Ended
	at := time.Duration(0)
	e.Turn(at, time.Minute)
	e.Add(1)
	e.Keep(2, at+90*time.Second, at)
	e.Keep(3, at+time.Hour, at)
	for number := range uint64(100_000) {
		e.Turn(at+59*time.Second, time.Second) // a shorter span changes nothing
		e.Add(number + 10)
	}
	if !e.Has(1) || !e.Has(10) || e.Has(200_000) {
		t.Error("want every call of the minute, and no other")
	}
	at += time.Minute
	e.Turn(at, time.Minute)
	e.Add(2) // the hold of a call that is kept has ended
	if !e.Has(1) || !e.Keeps(2, at+29*time.Second) || e.Keeps(2, at+30*time.Second) || !e.Keeps(3, at) || e.Keeps(1, at) {
		t.Error("a call is kept until exactly its time")
	}
	e.Refresh(1)
	e.Refresh(200_000)
	e.Turn(at+time.Minute, time.Minute)
	if !e.Has(1) || e.Has(10) || e.Has(3) || e.Keeps(3, at) || e.Has(200_000) {
		t.Error("want the calls of the last minute, and those that were refreshed")
	}
	if n := len(e.recent) + len(e.before); n != 2 {
		t.Errorf("%d calls are in memory, want 2", n)
	}
}
